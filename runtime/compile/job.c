#include "job.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cache/file.h"
#include "cache/report.h"

#define MAGIC UINT32_C(0x3177636a) // "jcw1"

// --- messages ------------------------------------------------------------------------------------

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

// The most descriptors that travel with a message: its content, and the one to be kept.
#define MAX_BESIDE 2

// Room for more than a message has, so that too many are told from a process that can take no more.
union beside {
    char bytes[CMSG_SPACE((MAX_BESIDE + 2) * sizeof(int))];
    struct cmsghdr align;
};

static void put_number(unsigned char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (unsigned char) (value >> 8 * i);
}

void jc_packet_write(unsigned char packet[static JC_PACKET_SIZE], enum jc_message_type type,
                     uint32_t number, uint64_t id)
{
    put_number(packet, MAGIC, 4);
    put_number(packet + 4, JC_PROTOCOL_VERSION, 4);
    put_number(packet + 8, type, 4);
    put_number(packet + 12, number, 4);
    put_number(packet + 16, id, 8);
}

// Sends the packet with `count` descriptors beside it.
static enum jc_result send_packet(int socket, unsigned char packet[static JC_PACKET_SIZE],
                                  const int *fds, size_t count, int flags, struct jc_error *error)
{
    union beside control = {0};
    struct iovec part = {.iov_base = packet, .iov_len = JC_PACKET_SIZE};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        header.msg_control = control.bytes;
        header.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    }

    ssize_t sent;
    do
        sent = sendmsg(socket, &header, flags | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent == JC_PACKET_SIZE)
        return JC_OK;
    if (errno == EPIPE || errno == ECONNRESET)
        return jc_fail(error, JC_ERROR_WORKER, "the other end is gone");
    return jc_fail(error, JC_ERROR_IO, "cannot send to the other end: %s", strerror(errno));
}

// Makes the file that a content travels in. -1 and an errno.
static int make_content(const struct jc_buffer *content)
{
    int fd = memfd_create("jitcache-message", MFD_CLOEXEC);
    if (fd < 0 || jc_file_write(fd, content->data, content->size))
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static enum jc_result fail_content(size_t size, struct jc_error *error)
{
    if (errno == EMFILE)
        return jc_fail(error, JC_ERROR_IO, "cannot send a message: this process has no file"
                       " descriptor left; raise its limit (ulimit -n)");
    if (errno == EFBIG)
        return jc_fail(error, JC_ERROR_IO, "cannot write a message of %zu bytes: files may not be"
                       " that large here; raise the limit (ulimit -f)", size);
    return jc_fail(error, JC_ERROR_IO, "cannot write a message of %zu bytes: %s", size,
                   strerror(errno));
}

enum jc_result jc_message_send(int socket, enum jc_message_type type, uint32_t number, uint64_t id,
                               const struct jc_buffer *content, int kept, struct jc_error *error)
{
    assert(content || kept < 0);
    unsigned char packet[JC_PACKET_SIZE];
    jc_packet_write(packet, type, number, id);
    if (!content)
        return send_packet(socket, packet, NULL, 0, MSG_DONTWAIT, error);
    if (content->failed)
        return jc_fail_memory(error);
    if (content->size > JC_MESSAGE_MAX_BYTES)
        return jc_fail(error, JC_ERROR_LIMIT, "%zu bytes are more than one message carries, %llu",
                       content->size, (unsigned long long) JC_MESSAGE_MAX_BYTES);

    int beside[MAX_BESIDE] = {make_content(content), kept};
    if (beside[0] < 0)
        return fail_content(content->size, error);
    enum jc_result result = send_packet(socket, packet, beside, kept < 0 ? 1 : 2, 0, error);
    close(beside[0]);
    return result;
}

// Takes the descriptors of a message, of which more than it can have are closed. Returns how many
// there were.
static size_t take_descriptors(const struct cmsghdr *rights, int beside[static MAX_BESIDE])
{
    for (size_t i = 0; i < MAX_BESIDE; i++)
        beside[i] = -1;
    if (!rights || rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(rights) + i * sizeof(fd), sizeof(fd));
        if (i < MAX_BESIDE)
            beside[i] = fd;
        else
            close(fd);
    }
    return count;
}

// What came with one call: the bytes of a packet, one more if it is too long, and what was beside.
struct arrival {
    char packet[JC_PACKET_SIZE + 1];
    int beside[MAX_BESIDE]; // -1 where there is none
    bool full; // this process could not take all that was beside
    bool crowded; // more was beside than belongs to a message
};

static ssize_t receive_packet(int socket, struct arrival *arrival)
{
    union beside control;
    struct iovec part = {.iov_base = arrival->packet, .iov_len = sizeof(arrival->packet)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t got;
    do
        got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);

    size_t count = take_descriptors(got < 0 ? NULL : CMSG_FIRSTHDR(&header), arrival->beside);
    arrival->crowded = count > MAX_BESIDE;
    arrival->full = got > 0 && !arrival->crowded && (header.msg_flags & MSG_CTRUNC);
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
    if (!read_all(memfd, message->data, message->size))
        return jc_fail(error, JC_ERROR_CORRUPT, "a message shorter than it says");
    message->data[message->size] = '\0';
    return JC_OK;
}

// Which messages have a content is known of this version alone.
static bool is_sound(const struct jc_message *message, const struct arrival *arrival)
{
    bool wanted = message->type <= JC_MESSAGE_ANSWER;
    return !arrival->crowded
        && (message->version != JC_PROTOCOL_VERSION || wanted == (arrival->beside[0] >= 0));
}

enum jc_result jc_message_receive(int socket, struct jc_message *message, struct jc_error *error)
{
    *message = (struct jc_message){.kept = -1};
    struct arrival arrival;
    ssize_t got = receive_packet(socket, &arrival);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return JC_ERROR_NOT_FOUND;
    if (got <= 0)
        return jc_fail(error, JC_ERROR_WORKER, "the other end is gone");

    struct jc_reader reader = {.at = arrival.packet, .left = (size_t) got};
    uint32_t magic = jc_reader_u32(&reader);
    message->version = jc_reader_u32(&reader);
    message->type = (enum jc_message_type) jc_reader_u32(&reader);
    message->number = jc_reader_u32(&reader);
    message->id = jc_reader_u64(&reader);
    message->kept = arrival.beside[1];
    enum jc_result result = JC_OK;
    if (arrival.full)
        result = jc_fail(error, JC_ERROR_IO, "cannot receive a message: this process has no file"
                         " descriptor left; raise its limit (ulimit -n)");
    else if (reader.failed || reader.left != 0 || magic != MAGIC || !is_sound(message, &arrival))
        result = jc_fail(error, JC_ERROR_CORRUPT, "a packet that is not a message");
    else if (arrival.beside[0] >= 0)
        result = read_content(arrival.beside[0], message, error);
    if (arrival.beside[0] >= 0)
        close(arrival.beside[0]);
    if (result != JC_OK)
        jc_message_finish(message);
    return result;
}

void jc_message_let_go(struct jc_message *message)
{
    if (message->kept >= 0)
        close(message->kept);
    message->kept = -1;
}

void jc_message_finish(struct jc_message *message)
{
    free(message->data);
    jc_message_let_go(message);
    *message = (struct jc_message){.kept = -1};
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
