// Jobs: what the library asks of a compile worker, and how the two talk.
//
// A message is one packet on a socket of type SOCK_SEQPACKET, and the descriptors that travel with
// it: a memfd with its content, unless it has none, and behind that one that the worker is to keep.
//
//   packet   offset  0  u32  magic, "jcw1"
//                    4  u32  protocol version
//                    8  u32  type
//                   12  u32  number
//                   16  u64  id; an answer carries that of its question
//   memfd            the content, of fields as buffer.h writes them
//
//   type     number      content                                       direction
//   hello    0           nvrtc, origin, limit in bytes, idle           to the worker, first
//   welcome  cores       library version, result, text, toolchain      from the worker
//   compile  0           file, source, entry, options, headers, pch    to the worker, and beside it
//                                                                      the lock of its flight
//   answer   0           result, text, lowered name, log, cubin, ns    from the worker
//   pulse    MiB         none: the worker lives and is that large      from the worker, each second
//   crash    signal      none: the worker is about to end by it        from the worker
//   full     MiB         none: it grew past its limit and ends         from the worker
//
// Pulses come before the welcome too: to find NVRTC may take a while.
//
// Packets are small and sent whole, so neither side ever waits for the second half of one. Neither
// side trusts the other: the worker runs a compiler on text from anywhere. A worker that says
// nothing for JC_PULSE_LIMIT_NS, be it idle or at work, is stopped or stuck as a whole.

#ifndef JC_JOB_H
#define JC_JOB_H

#include "buffer.h"

#define JC_PROTOCOL_VERSION 2

#define JC_PULSE_NS UINT64_C(1000000000)
#define JC_PULSE_LIMIT_NS UINT64_C(30000000000)

// The status with which a worker ends that grew past its limit.
#define JC_STATUS_FULL 3

// The largest content: a job with all its headers, or a cubin.
#define JC_MESSAGE_MAX_BYTES (UINT64_C(256) << 20)

enum jc_message_type {
    JC_MESSAGE_HELLO = 1,
    JC_MESSAGE_WELCOME = 2,
    JC_MESSAGE_COMPILE = 3,
    JC_MESSAGE_ANSWER = 4,
    JC_MESSAGE_PULSE = 5,
    JC_MESSAGE_CRASH = 6,
    JC_MESSAGE_FULL = 7
};

struct jc_message {
    uint32_t version;
    enum jc_message_type type;
    uint32_t number;
    uint64_t id;
    char *data; // the content, with a NUL behind it; released with free. NULL: it has none
    size_t size;
    int kept; // the descriptor behind the content, to be closed; -1 for none
};

// Sends a message. `content` may be NULL, `kept` -1; that descriptor stays the caller's. Only the
// packet can block, and only where the peer lets packets pile up; a message without a content never
// does, but is lost then. JC_ERROR_WORKER: the peer is gone. JC_ERROR_LIMIT,
// JC_ERROR_OUT_OF_MEMORY, JC_ERROR_IO.
enum jc_result jc_message_send(int socket, enum jc_message_type type, uint32_t number, uint64_t id,
                               const struct jc_buffer *content, int kept, struct jc_error *error);

// Receives one. JC_ERROR_NOT_FOUND: none is there now, on a socket that does not block.
// JC_ERROR_WORKER: the peer is gone. JC_ERROR_CORRUPT: what it sent is not a message.
// JC_ERROR_IO, JC_ERROR_OUT_OF_MEMORY: there is no room for it here; it is lost.
// On failure the message is empty.
enum jc_result jc_message_receive(int socket, struct jc_message *message, struct jc_error *error);

// Closes what was kept; the rest stays.
void jc_message_let_go(struct jc_message *message);

// Lets go of what was kept, too. Accepts an empty one.
void jc_message_finish(struct jc_message *message);

// Writes the packet of a message without content, for where no more than send may be called: in a
// signal handler.
#define JC_PACKET_SIZE 24
void jc_packet_write(unsigned char packet[static JC_PACKET_SIZE], enum jc_message_type type,
                     uint32_t number, uint64_t id);

// A header that is given to the compiler in memory.
struct jc_job_header {
    const char *name;
    const char *text; // of `size` bytes, then a NUL
    size_t size;
};

// The line behind the head of a source, in a job with `pch`. A compiler without them ignores it.
#define JC_JOB_HEAD_END "#pragma nv_hdrstop\n"

// One compile. The caller owns everything in it.
struct jc_job {
    const char *file; // what the compiler is told that the source is called
    const char *source;
    const char *entry; // name expression of the kernel
    const char *const *options; // -arch included, -I not: the worker knows the folders
    size_t num_options;
    const struct jc_job_header *headers;
    size_t num_headers;
    bool pch; // keep what the headers at the head of the source come to, for the next such job
};

// What became of it. Strings are never NULL in a decoded answer.
struct jc_job_answer {
    enum jc_result result;
    char *text;         // what went wrong; ""
    char *lowered_name; // the kernel's symbol in the cubin
    char *log;
    void *cubin;
    size_t cubin_size;
    uint64_t elapsed_ns;
};

void jc_job_encode(const struct jc_job *job, struct jc_buffer *content);

// Decodes in place: the job points into `content`, which must stay. Its arrays are released with
// jc_job_decoded_finish. JC_ERROR_CORRUPT, JC_ERROR_OUT_OF_MEMORY.
enum jc_result jc_job_decode(const char *content, size_t size, struct jc_job *job);
void jc_job_decoded_finish(struct jc_job *job);

void jc_job_answer_encode(const struct jc_job_answer *answer, struct jc_buffer *content);
enum jc_result jc_job_answer_decode(const char *content, size_t size, struct jc_job_answer *answer);
void jc_job_answer_finish(struct jc_job_answer *answer);

#endif
