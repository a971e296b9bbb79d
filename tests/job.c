#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/compile/job.h"

static const struct jc_job_header two_headers[] = {
    {.name = "a.h", .text = "#define A 1\n", .size = 12},
    {.name = "b/b.h", .text = "", .size = 0},
};

static const char *const two_options[] = {"-arch=sm_90a", "--std=c++17"};

static const struct jc_job example = {
    .file = "k.cu",
    .source = "__global__ void k() {}\n",
    .entry = "k",
    .options = two_options,
    .num_options = 2,
    .headers = two_headers,
    .num_headers = 2,
    .pch = true,
};

static void a_job_survives_the_way(void **state)
{
    (void) state;
    struct jc_buffer content = {0};
    jc_job_encode(&example, &content);
    assert_false(content.failed);
    struct jc_job job;
    assert_int_equal(jc_job_decode(content.data, content.size, &job), JC_OK);
    assert_string_equal(job.file, example.file);
    assert_string_equal(job.source, example.source);
    assert_string_equal(job.entry, example.entry);
    assert_int_equal(job.num_options, 2);
    assert_string_equal(job.options[1], two_options[1]);
    assert_int_equal(job.num_headers, 2);
    assert_string_equal(job.headers[0].text, two_headers[0].text);
    assert_int_equal(job.headers[0].size, 12);
    assert_string_equal(job.headers[1].name, "b/b.h");
    assert_true(job.pch);
    jc_job_decoded_finish(&job);
    jc_buffer_finish(&content);
}

static void a_job_cut_short_anywhere_is_refused(void **state)
{
    (void) state;
    struct jc_buffer content = {0};
    jc_job_encode(&example, &content);
    for (size_t size = 0; size < content.size; size++) {
        // A copy of that very size, so that a sanitizer sees a read past it.
        char *cut = malloc(size + !size);
        memcpy(cut, content.data, size);
        struct jc_job job;
        assert_int_equal(jc_job_decode(cut, size, &job), JC_ERROR_CORRUPT);
        free(cut);
    }
    struct jc_job job;
    content.data[content.size - 4] = 2; // neither with precompiled headers nor without
    assert_int_equal(jc_job_decode(content.data, content.size, &job), JC_ERROR_CORRUPT);
    content.data[content.size - 4] = 0;
    assert_int_equal(jc_job_decode(content.data, content.size, &job), JC_OK);
    assert_false(job.pch);
    jc_job_decoded_finish(&job);
    jc_buffer_u32(&content, 0);
    assert_int_equal(jc_job_decode(content.data, content.size, &job), JC_ERROR_CORRUPT);
    jc_buffer_finish(&content);
}

static void counts_and_lengths_that_lie_are_refused(void **state)
{
    (void) state;
    struct jc_buffer content = {0};
    jc_job_encode(&example, &content);
    // Every 32-bit word in turn becomes the largest number: lengths and counts are among them.
    for (size_t at = 0; at + 4 <= content.size; at++) {
        char *lie = malloc(content.size);
        memcpy(lie, content.data, content.size);
        memset(lie + at, 0xff, 4);
        struct jc_job job;
        if (jc_job_decode(lie, content.size, &job) == JC_OK)
            jc_job_decoded_finish(&job); // it hit a text: a different job, but a sound one
        free(lie);
    }
    char count_alone[] = "\1\0\0\0\0\1\0\0\0\0\1\0\0\0\0\xff\xff\xff\x7f";
    struct jc_job job;
    assert_int_equal(jc_job_decode(count_alone, 19, &job), JC_ERROR_CORRUPT);
    jc_buffer_finish(&content);
}

static void a_string_with_a_nul_inside_is_refused(void **state)
{
    (void) state;
    struct jc_reader inside = {.at = "\4\0\0\0a\0b\0", .left = 8};
    assert_string_equal(jc_reader_string(&inside), "");
    assert_true(inside.failed);
    struct jc_reader open_end = {.at = "\2\0\0\0ab", .left = 6};
    jc_reader_string(&open_end);
    assert_true(open_end.failed);
    struct jc_reader sound = {.at = "\3\0\0\0ab\0", .left = 7};
    assert_string_equal(jc_reader_string(&sound), "ab");
    assert_false(sound.failed);
}

static void an_answer_survives_the_way(void **state)
{
    (void) state;
    char text[] = "", name[] = "_Z1kv", log[] = "a log", cubin[] = "\177ELF";
    const struct jc_job_answer given = {.result = JC_OK, .text = text, .lowered_name = name,
        .log = log, .cubin = cubin, .cubin_size = sizeof(cubin), .elapsed_ns = 12345678901};
    struct jc_buffer content = {0};
    jc_job_answer_encode(&given, &content);
    struct jc_job_answer answer;
    assert_int_equal(jc_job_answer_decode(content.data, content.size, &answer), JC_OK);
    assert_int_equal(answer.result, JC_OK);
    assert_string_equal(answer.lowered_name, name);
    assert_string_equal(answer.log, log);
    assert_int_equal(answer.cubin_size, sizeof(cubin));
    assert_memory_equal(answer.cubin, cubin, sizeof(cubin));
    assert_true(answer.elapsed_ns == given.elapsed_ns);
    jc_job_answer_finish(&answer);
    for (size_t size = 0; size < content.size; size++)
        assert_int_equal(jc_job_answer_decode(content.data, size, &answer), JC_ERROR_CORRUPT);
    jc_buffer_finish(&content);
}

static void success_without_a_cubin_is_refused(void **state)
{
    (void) state;
    const struct jc_job_answer given = {.result = JC_OK};
    struct jc_buffer content = {0};
    jc_job_answer_encode(&given, &content);
    struct jc_job_answer answer;
    assert_int_equal(jc_job_answer_decode(content.data, content.size, &answer), JC_ERROR_CORRUPT);
    jc_buffer_finish(&content);
}

static void make_sockets(int sockets[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
}

static void a_large_message_arrives_whole(void **state)
{
    (void) state;
    int sockets[2];
    make_sockets(sockets);
    struct jc_buffer content = {0};
    for (uint64_t i = 0; i < 1 << 20; i++)
        jc_buffer_u64(&content, i * i);
    struct jc_error error;
    assert_int_equal(jc_message_send(sockets[0], JC_MESSAGE_COMPILE, 3, 7, &content, -1, &error),
                     JC_OK);
    struct jc_message message;
    assert_int_equal(jc_message_receive(sockets[1], &message, &error), JC_OK);
    assert_int_equal(message.type, JC_MESSAGE_COMPILE);
    assert_int_equal(message.version, JC_PROTOCOL_VERSION);
    assert_int_equal(message.number, 3);
    assert_int_equal(message.id, 7);
    assert_int_equal(message.size, content.size);
    assert_memory_equal(message.data, content.data, content.size);
    assert_int_equal(message.kept, -1);
    jc_message_finish(&message);
    jc_buffer_finish(&content);
    close(sockets[0]);
    assert_int_equal(jc_message_receive(sockets[1], &message, &error), JC_ERROR_WORKER);
    close(sockets[1]);
}

// The lowest descriptor that is free: the same before and after if nothing was left open.
static int next_descriptor(int any)
{
    int fd = dup(any);
    close(fd);
    return fd;
}

static void a_descriptor_travels_behind_the_content(void **state)
{
    (void) state;
    int sockets[2];
    make_sockets(sockets);
    int next = next_descriptor(sockets[0]);
    struct jc_buffer content = {0};
    jc_buffer_string(&content, "content");
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(jc_message_send(sockets[0], JC_MESSAGE_COMPILE, 0, 1, &content, ends[1], NULL),
                     JC_OK);
    close(ends[1]);
    struct jc_message message;
    assert_int_equal(jc_message_receive(sockets[1], &message, NULL), JC_OK);
    assert_string_equal(message.data, "content");
    assert_int_equal(write(message.kept, "x", 1), 1);
    char got;
    assert_int_equal(read(ends[0], &got, 1), 1);
    assert_true(fcntl(message.kept, F_GETFD) & FD_CLOEXEC);
    jc_message_finish(&message);
    assert_int_equal(read(ends[0], &got, 1), 0); // the last copy is closed
    close(ends[0]);
    assert_int_equal(next_descriptor(sockets[0]), next);
    jc_buffer_finish(&content);
    close(sockets[0]);
    close(sockets[1]);
}

static void a_message_without_content_is_a_packet_alone(void **state)
{
    (void) state;
    int sockets[2];
    make_sockets(sockets);
    struct jc_message message;
    assert_int_equal(jc_message_send(sockets[0], JC_MESSAGE_PULSE, 77, 5, NULL, -1, NULL), JC_OK);
    assert_int_equal(jc_message_receive(sockets[1], &message, NULL), JC_OK);
    assert_int_equal(message.type, JC_MESSAGE_PULSE);
    assert_int_equal(message.number, 77);
    assert_int_equal(message.id, 5);
    assert_null(message.data);
    jc_message_finish(&message);

    unsigned char packet[JC_PACKET_SIZE];
    jc_packet_write(packet, JC_MESSAGE_CRASH, 11, 0);
    assert_int_equal(send(sockets[0], packet, sizeof(packet), 0), sizeof(packet));
    assert_int_equal(jc_message_receive(sockets[1], &message, NULL), JC_OK);
    assert_int_equal(message.type, JC_MESSAGE_CRASH);
    assert_int_equal(message.number, 11);
    jc_message_finish(&message);
    close(sockets[0]);
    close(sockets[1]);
}

// A peer that is stopped reads nothing; whoever tells it something must not stop too.
static void a_message_without_content_never_waits_for_room(void **state)
{
    (void) state;
    int sockets[2];
    make_sockets(sockets);
    enum jc_result result = JC_OK;
    size_t sent = 0;
    for (; result == JC_OK && sent < 1 << 20; sent++)
        result = jc_message_send(sockets[0], JC_MESSAGE_PULSE, 0, 0, NULL, -1, NULL);
    assert_int_equal(result, JC_ERROR_IO);
    struct jc_message message;
    for (size_t received = 1; received < sent; received++)
        assert_int_equal(jc_message_receive(sockets[1], &message, NULL), JC_OK);
    close(sockets[0]);
    close(sockets[1]);
}

static void what_is_no_message_is_refused(void **state)
{
    (void) state;
    static const struct {
        const char *bytes;
        size_t size;
    } packets[] = {
        {"hello", 5},
        {"jcw1", 4},
        // Whole, but without a memfd.
        {"jcw1\2\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24},
        {"jcw1\2\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24},
        {"jcw1\2\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0x", 25},
        {"xcw1\2\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24},
    };
    for (size_t i = 0; i < sizeof(packets) / sizeof(packets[0]); i++) {
        int sockets[2];
        make_sockets(sockets);
        assert_int_equal(send(sockets[0], packets[i].bytes, packets[i].size, 0), packets[i].size);
        struct jc_message message;
        struct jc_error error;
        assert_int_equal(jc_message_receive(sockets[1], &message, &error), JC_ERROR_CORRUPT);
        assert_null(message.data);
        close(sockets[0]);
        close(sockets[1]);
    }
}

static void send_with_descriptors(int socket, enum jc_message_type type, const int *fds,
                                  size_t count)
{
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    unsigned char packet[JC_PACKET_SIZE];
    jc_packet_write(packet, type, 0, 0);
    struct iovec part = {.iov_base = packet, .iov_len = sizeof(packet)};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                            .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    assert_int_equal(sendmsg(socket, &header, 0), sizeof(packet));
}

static void descriptors_that_belong_to_no_message_are_closed(void **state)
{
    (void) state;
    int content = memfd_create("content", MFD_CLOEXEC);
    static const enum jc_message_type types[] = {JC_MESSAGE_COMPILE, JC_MESSAGE_PULSE};
    for (size_t i = 0; i < 2; i++) {
        for (size_t count = 1; count <= 8; count++) {
            int sockets[2];
            make_sockets(sockets);
            int next = next_descriptor(content);
            // Of the sound number it is the content that is none: a socket.
            bool sound = types[i] == JC_MESSAGE_COMPILE && count <= 2;
            int fds[8];
            for (size_t j = 0; j < count; j++)
                fds[j] = sound ? sockets[0] : content;
            send_with_descriptors(sockets[0], types[i], fds, count);
            struct jc_message message;
            struct jc_error error;
            assert_int_equal(jc_message_receive(sockets[1], &message, &error), JC_ERROR_CORRUPT);
            assert_int_equal(message.kept, -1);
            assert_int_equal(next_descriptor(content), next);
            close(sockets[0]);
            close(sockets[1]);
        }
    }
    close(content);
}

static void a_message_without_room_for_its_descriptors_is_no_fault_of_the_peer(void **state)
{
    (void) state;
    for (rlim_t room = 0; room < 2; room++) {
        int sockets[2];
        make_sockets(sockets);
        int content = memfd_create("content", MFD_CLOEXEC);
        send_with_descriptors(sockets[0], JC_MESSAGE_COMPILE, (const int[]){content, content}, 2);
        struct rlimit limit;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        int next = next_descriptor(content);
        const struct rlimit tight = {.rlim_cur = (rlim_t) next + room, .rlim_max = limit.rlim_max};
        struct jc_message message;
        struct jc_error error;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        enum jc_result result = jc_message_receive(sockets[1], &message, &error);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_int_equal(result, JC_ERROR_IO);
        assert_non_null(strstr(error.text, "ulimit -n"));
        assert_int_equal(next_descriptor(content), next);
        close(content);
        close(sockets[0]);
        close(sockets[1]);
    }
}

// In a child with a limit of its own: a write past one on file size is a signal otherwise.
static void send_under_limit(int resource, rlim_t value, const char *limit_name)
{
    int status, sockets[2];
    make_sockets(sockets);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit;
        struct jc_error error;
        struct jc_message message;
        struct jc_buffer content = {0};
        for (uint64_t i = 0; i < 1000; i++)
            jc_buffer_u64(&content, i);
        if (getrlimit(resource, &limit) != 0)
            _exit(1);
        struct rlimit tight = {.rlim_cur = value, .rlim_max = limit.rlim_max};
        if (setrlimit(resource, &tight) != 0)
            _exit(1);
        if (jc_message_send(sockets[0], JC_MESSAGE_COMPILE, 1, 1, &content, -1, &error) !=
                JC_ERROR_IO || !strstr(error.text, limit_name))
            _exit(2);
        // It passes with the limit, and the socket is as it was.
        if (setrlimit(resource, &limit) != 0 ||
            jc_message_send(sockets[0], JC_MESSAGE_COMPILE, 1, 2, &content, -1, &error) != JC_OK ||
            jc_message_receive(sockets[1], &message, &error) != JC_OK || message.id != 2)
            _exit(3);
        jc_message_finish(&message);
        jc_buffer_finish(&content);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(sockets[0]);
    close(sockets[1]);
}

static void a_message_that_a_limit_keeps_back_names_it(void **state)
{
    (void) state;
    send_under_limit(RLIMIT_NOFILE, 0, "ulimit -n");
    send_under_limit(RLIMIT_FSIZE, 0, "ulimit -f");
    send_under_limit(RLIMIT_FSIZE, 1024, "ulimit -f");
    send_under_limit(RLIMIT_FSIZE, 7999, "ulimit -f");
}

// What a message of another version has beside it is not known; that it is of another one is.
static void a_message_of_another_version_is_received(void **state)
{
    (void) state;
    int sockets[2];
    make_sockets(sockets);
    unsigned char packet[JC_PACKET_SIZE];
    jc_packet_write(packet, JC_MESSAGE_HELLO, 0, 0);
    packet[4] = 99;
    assert_int_equal(send(sockets[0], packet, sizeof(packet), 0), sizeof(packet));
    struct jc_message message;
    assert_int_equal(jc_message_receive(sockets[1], &message, NULL), JC_OK);
    assert_int_equal(message.version, 99);
    assert_null(message.data);
    jc_message_finish(&message);
    close(sockets[0]);
    close(sockets[1]);
}

static void nothing_there_is_no_error(void **state)
{
    (void) state;
    int sockets[2];
    make_sockets(sockets);
    fcntl(sockets[1], F_SETFL, O_NONBLOCK);
    struct jc_message message;
    assert_int_equal(jc_message_receive(sockets[1], &message, NULL), JC_ERROR_NOT_FOUND);
    close(sockets[1]);
    struct jc_buffer content = {0};
    assert_int_equal(jc_message_send(sockets[0], JC_MESSAGE_HELLO, 0, 0, &content, -1, NULL),
                     JC_ERROR_WORKER);
    assert_int_equal(jc_message_send(sockets[0], JC_MESSAGE_PULSE, 0, 0, NULL, -1, NULL),
                     JC_ERROR_WORKER);
    close(sockets[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_survives_the_way),
        cmocka_unit_test(a_job_cut_short_anywhere_is_refused),
        cmocka_unit_test(counts_and_lengths_that_lie_are_refused),
        cmocka_unit_test(a_string_with_a_nul_inside_is_refused),
        cmocka_unit_test(an_answer_survives_the_way),
        cmocka_unit_test(success_without_a_cubin_is_refused),
        cmocka_unit_test(a_large_message_arrives_whole),
        cmocka_unit_test(a_descriptor_travels_behind_the_content),
        cmocka_unit_test(a_message_without_content_is_a_packet_alone),
        cmocka_unit_test(a_message_without_content_never_waits_for_room),
        cmocka_unit_test(a_message_of_another_version_is_received),
        cmocka_unit_test(what_is_no_message_is_refused),
        cmocka_unit_test(descriptors_that_belong_to_no_message_are_closed),
        cmocka_unit_test(a_message_without_room_for_its_descriptors_is_no_fault_of_the_peer),
        cmocka_unit_test(a_message_that_a_limit_keeps_back_names_it),
        cmocka_unit_test(nothing_there_is_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
