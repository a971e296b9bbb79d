// Precompiled headers: the folders in which NVRTC keeps what the headers at the head of a source
// come to, for the next job with that head. What it keeps is good in this process alone, and two
// processes in one folder read each other's halves, so each worker has a folder of its own:
//
//   TMPDIR/jitcache-pch-XXXXXX/   of one worker; /tmp without an absolute TMPDIR
//       lock                      an OFD lock is held on it as long as the worker lives
//       DIGEST/                   for one head: its text, headers, options and file name
//           *.pch                 NVRTC's, a few hundred megabytes
//
// A worker makes it at its first such job and removes it at its end. What one that was killed has
// left goes when the next one makes its own. Nothing here is needed: where it fails, jobs are
// compiled without.
//
// Threads: one at a time, but jc_pch_finish, which any may call at any time.

#ifndef JC_PCH_H
#define JC_PCH_H

#include <limits.h>
#include <pthread.h>

#include <jitcache/cache.h>

#include "job.h"

// How many heads are kept: a template for two architectures, or two templates in turn.
#define JC_PCH_HEADS 2

struct jc_pch_head {
    char name[JC_KEY_STRING_SIZE]; // of its folder; "": none
    uint64_t used;                 // the number of the last job with it
};

struct jc_pch {
    pthread_mutex_t mutex; // guards everything below
    bool finished;
    char *folder; // NULL: not made yet
    int fd;       // of it
    int lock;
    uint64_t jobs;
    struct jc_pch_head heads[JC_PCH_HEADS];
    char path[PATH_MAX]; // of the head that was asked for last
};

void jc_pch_init(struct jc_pch *pch);

// Removes everything; jobs are compiled without from then on. Can be done more than once.
void jc_pch_finish(struct jc_pch *pch);

// The folder for the job's head, good until the next call. NULL: compile without.
const char *jc_pch_folder(struct jc_pch *pch, const struct jc_job *job);

// Nothing that was kept can be used any more: it is removed.
void jc_pch_forget(struct jc_pch *pch);

#endif
