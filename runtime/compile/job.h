// Jobs: what the library asks of a compile worker, and how the two talk.
//
// A message is one packet on a socket of type SOCK_SEQPACKET and one memfd that travels with it:
//
//   packet   offset  0  u32  magic, "jcw1"
//                    4  u32  protocol version
//                    8  u32  type
//                   12  u32  zero
//                   16  u64  id; an answer carries that of its question
//   memfd            the content, of fields as buffer.h writes them
//
//   type     content                                                   direction
//   hello    nvrtc, origin                                             to the worker, first
//   welcome  library version, result, text, toolchain                  from the worker
//   compile  file, source, entry, options, headers, pch                to the worker
//   answer   result, text, lowered name, log, cubin, nanoseconds       from the worker
//
// Packets are small and sent whole, so neither side ever waits for the second half of one. Neither
// side trusts the other: the worker runs a compiler on text from anywhere.

#ifndef JC_JOB_H
#define JC_JOB_H

#include "buffer.h"

#define JC_PROTOCOL_VERSION 1

// The largest content: a job with all its headers, or a cubin.
#define JC_MESSAGE_MAX_BYTES (UINT64_C(256) << 20)

enum jc_message_type {
    JC_MESSAGE_HELLO = 1,
    JC_MESSAGE_WELCOME = 2,
    JC_MESSAGE_COMPILE = 3,
    JC_MESSAGE_ANSWER = 4
};

struct jc_message {
    uint32_t version;
    enum jc_message_type type;
    uint64_t id;
    char *data; // the content; released with free
    size_t size;
};

// Sends a message. Only the packet can block, and only where the peer lets packets pile up.
// JC_ERROR_WORKER: the peer is gone. JC_ERROR_LIMIT, JC_ERROR_OUT_OF_MEMORY, JC_ERROR_IO.
enum jc_result jc_message_send(int socket, enum jc_message_type type, uint64_t id,
                               const struct jc_buffer *content, struct jc_error *error);

// Receives one. JC_ERROR_NOT_FOUND: none is there now, on a socket that does not block.
// JC_ERROR_WORKER: the peer is gone. JC_ERROR_CORRUPT: what it sent is not a message.
// JC_ERROR_IO, JC_ERROR_OUT_OF_MEMORY: there is no room for it here; it is lost.
enum jc_result jc_message_receive(int socket, struct jc_message *message, struct jc_error *error);

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
