#include "job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/report.h"

#define MAGIC UINT32_C(0x3177636a) // "jcw1"
#define PACKET_SIZE 24

// --- messages ------------------------------------------------------------------------------------

static bool write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t done = write(fd, data, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        data += done;
        size -= (size_t) done;
    }
    return true;
}

static bool read_all(int fd, char *data, size_t size)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(fd, data + done, size - done, (off_t) done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (size_t) got;
    }
    return true;
}

// Sends the packet with the memfd beside it.
static enum jc_result send_packet(int socket, const struct jc_buffer *packet, int content,
                                  struct jc_error *error)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = packet->data, .iov_len = packet->size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &content, sizeof(int));

    ssize_t sent;
    do
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == (ssize_t) packet->size)
        return JC_OK;
    if (errno == EPIPE || errno == ECONNRESET)
        return jc_fail(error, JC_ERROR_WORKER, "the other end is gone");
    return jc_fail(error, JC_ERROR_IO, "cannot send to the other end: %s", strerror(errno));
}

enum jc_result jc_message_send(int socket, enum jc_message_type type, uint64_t id,
                               const struct jc_buffer *content, struct jc_error *error)
{
    if (content->failed)
        return jc_fail_memory(error);
    if (content->size > JC_MESSAGE_MAX_BYTES)
        return jc_fail(error, JC_ERROR_LIMIT, "%zu bytes are more than one message carries, %llu",
                       content->size, (unsigned long long) JC_MESSAGE_MAX_BYTES);

    enum jc_result result;
    struct jc_buffer packet = {0};
    jc_buffer_u32(&packet, MAGIC);
    jc_buffer_u32(&packet, JC_PROTOCOL_VERSION);
    jc_buffer_u32(&packet, type);
    jc_buffer_u32(&packet, 0);
    jc_buffer_u64(&packet, id);
    int memfd = memfd_create("jitcache-message", MFD_CLOEXEC);
    if (packet.failed)
        result = jc_fail_memory(error);
    else if (memfd < 0 || !write_all(memfd, content->data, content->size))
        result = jc_fail(error, JC_ERROR_IO, "cannot write a message of %zu bytes: %s",
                         content->size, strerror(errno));
    else
        result = send_packet(socket, &packet, memfd, error);
    if (memfd >= 0)
        close(memfd);
    jc_buffer_finish(&packet);
    return result;
}

// The one descriptor of a message. Of several, which no message has, none is kept.
static int take_descriptor(const struct cmsghdr *rights)
{
    if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS)
        return -1;
    size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    int fd = -1;
    for (size_t i = 0; i < count; i++) {
        memcpy(&fd, CMSG_DATA(rights) + i * sizeof(fd), sizeof(fd));
        if (count > 1)
            close(fd);
    }
    return count == 1 ? fd : -1;
}

// Receives one packet and the descriptor beside it; -1 where there is none. `*full`: there was one,
// and this process can have no more.
static ssize_t receive_packet(int socket, char packet[PACKET_SIZE + 1], int *content, bool *full)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = packet, .iov_len = PACKET_SIZE + 1};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t got;
    do
        got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);

    struct cmsghdr *rights = got < 0 ? NULL : CMSG_FIRSTHDR(&header);
    *content = take_descriptor(rights);
    *full = got > 0 && !rights && (header.msg_flags & MSG_CTRUNC);
    return got;
}

// Copies the content out. It is read, not mapped: a peer that cuts the file short then makes this
// fail instead of raising SIGBUS.
static enum jc_result read_content(int memfd, struct jc_message *message, struct jc_error *error)
{
    struct stat status;
    if (fstat(memfd, &status) < 0 || !S_ISREG(status.st_mode) || status.st_size < 0
        || (uint64_t) status.st_size > JC_MESSAGE_MAX_BYTES)
        return jc_fail(error, JC_ERROR_CORRUPT, "a message without a readable content");
    message->size = (size_t) status.st_size;
    message->data = malloc(message->size + 1);
    if (!message->data)
        return jc_fail_memory(error);
    if (!read_all(memfd, message->data, message->size)) {
        free(message->data);
        message->data = NULL;
        return jc_fail(error, JC_ERROR_CORRUPT, "a message shorter than it says");
    }
    message->data[message->size] = '\0';
    return JC_OK;
}

enum jc_result jc_message_receive(int socket, struct jc_message *message, struct jc_error *error)
{
    *message = (struct jc_message){0};
    char packet[PACKET_SIZE + 1];
    int memfd;
    bool full;
    ssize_t got = receive_packet(socket, packet, &memfd, &full);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return JC_ERROR_NOT_FOUND;
    if (got <= 0)
        return jc_fail(error, JC_ERROR_WORKER, "the other end is gone");

    struct jc_reader reader = {.at = packet, .left = (size_t) got};
    uint32_t magic = jc_reader_u32(&reader);
    message->version = jc_reader_u32(&reader);
    message->type = (enum jc_message_type) jc_reader_u32(&reader);
    jc_reader_u32(&reader);
    message->id = jc_reader_u64(&reader);
    enum jc_result result;
    if (full)
        result = jc_fail(error, JC_ERROR_IO, "cannot receive a message: this process has no file"
                         " descriptor left; raise its limit (ulimit -n)");
    else if (reader.failed || reader.left != 0 || magic != MAGIC || memfd < 0)
        result = jc_fail(error, JC_ERROR_CORRUPT, "a packet that is not a message");
    else
        result = read_content(memfd, message, error);
    if (memfd >= 0)
        close(memfd);
    return result;
}

// --- what they carry -----------------------------------------------------------------------------

void jc_job_encode(const struct jc_job *job, struct jc_buffer *content)
{
    jc_buffer_field_string(content, job->file);
    jc_buffer_field_string(content, job->source);
    jc_buffer_field_string(content, job->entry);
    jc_buffer_u32(content, (uint32_t) job->num_options);
    for (size_t i = 0; i < job->num_options; i++)
        jc_buffer_field_string(content, job->options[i]);
    jc_buffer_u32(content, (uint32_t) job->num_headers);
    for (size_t i = 0; i < job->num_headers; i++) {
        jc_buffer_field_string(content, job->headers[i].name);
        jc_buffer_field_string(content, job->headers[i].text);
    }
    jc_buffer_u32(content, job->pch);
}

// Every entry of a list takes at least four bytes, so a count that the content cannot hold is wrong
// before anything is allocated for it.
static size_t read_count(struct jc_reader *reader)
{
    size_t count = jc_reader_u32(reader);
    if (reader->failed || count > reader->left / 4) {
        reader->failed = true;
        return 0;
    }
    return count;
}

enum jc_result jc_job_decode(const char *content, size_t size, struct jc_job *job)
{
    struct jc_reader reader = {.at = content, .left = size};
    *job = (struct jc_job){0};
    job->file = jc_reader_string(&reader);
    job->source = jc_reader_string(&reader);
    job->entry = jc_reader_string(&reader);

    job->num_options = read_count(&reader);
    const char **options = calloc(job->num_options + 1, sizeof(*options));
    job->options = options;
    for (size_t i = 0; options && i < job->num_options; i++)
        options[i] = jc_reader_string(&reader);

    job->num_headers = read_count(&reader);
    struct jc_job_header *headers = calloc(job->num_headers + 1, sizeof(*headers));
    job->headers = headers;
    for (size_t i = 0; headers && i < job->num_headers; i++) {
        headers[i].name = jc_reader_string(&reader);
        headers[i].text = jc_reader_string(&reader);
        headers[i].size = strlen(headers[i].text);
    }
    uint32_t pch = jc_reader_u32(&reader);
    job->pch = pch == 1;

    if (options && headers && !reader.failed && reader.left == 0 && pch <= 1)
        return JC_OK;
    enum jc_result result = options && headers ? JC_ERROR_CORRUPT : JC_ERROR_OUT_OF_MEMORY;
    jc_job_decoded_finish(job);
    return result;
}

void jc_job_decoded_finish(struct jc_job *job)
{
    free((void *) (uintptr_t) job->options);
    free((void *) (uintptr_t) job->headers);
    *job = (struct jc_job){0};
}

void jc_job_answer_encode(const struct jc_job_answer *answer, struct jc_buffer *content)
{
    jc_buffer_u32(content, answer->result);
    jc_buffer_field_string(content, answer->text);
    jc_buffer_field_string(content, answer->lowered_name);
    jc_buffer_field_string(content, answer->log);
    jc_buffer_field(content, answer->cubin, answer->cubin_size);
    jc_buffer_u64(content, answer->elapsed_ns);
}

enum jc_result jc_job_answer_decode(const char *content, size_t size, struct jc_job_answer *answer)
{
    struct jc_reader reader = {.at = content, .left = size};
    *answer = (struct jc_job_answer){0};
    answer->result = (enum jc_result) jc_reader_u32(&reader);
    answer->text = jc_reader_copy(&reader);
    answer->lowered_name = jc_reader_copy(&reader);
    answer->log = jc_reader_copy(&reader);
    const char *cubin = jc_reader_field(&reader, &answer->cubin_size);
    answer->elapsed_ns = jc_reader_u64(&reader);

    answer->cubin = malloc(answer->cubin_size + 1);
    bool memory = answer->text && answer->lowered_name && answer->log && answer->cubin;
    bool sound = !reader.failed && reader.left == 0
        && (unsigned) answer->result <= JC_ERROR_UNSUPPORTED
        && (answer->result != JC_OK || answer->cubin_size > 0);
    if (memory && sound) {
        memcpy(answer->cubin, cubin, answer->cubin_size);
        return JC_OK;
    }
    jc_job_answer_finish(answer);
    return memory ? JC_ERROR_CORRUPT : JC_ERROR_OUT_OF_MEMORY;
}

void jc_job_answer_finish(struct jc_job_answer *answer)
{
    free(answer->text);
    free(answer->lowered_name);
    free(answer->log);
    free(answer->cubin);
    *answer = (struct jc_job_answer){0};
}
