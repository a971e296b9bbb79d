#include "build.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "buffer.h"

// A linker's build id is a note: u32 name size, u32 id size, u32 type, then name and id, each
// padded to four bytes. The notes are found through the program headers. Files are read, not
// mapped: one that is overwritten meanwhile must not end the process.

// More than the notes of any library take.
#define MAX_NOTES 65536
#define MAX_SEGMENTS 256

static bool read_at(int fd, void *data, size_t size, uint64_t offset)
{
    ssize_t got;
    do
        got = pread(fd, data, size, (off_t) offset);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t) size;
}

static bool find_id(const unsigned char *at, size_t size, const unsigned char **id, size_t *id_size)
{
    while (size >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr note;
        memcpy(&note, at, sizeof(note));
        uint64_t name = ((uint64_t) note.n_namesz + 3) & ~UINT64_C(3);
        uint64_t content = ((uint64_t) note.n_descsz + 3) & ~UINT64_C(3);
        if (name + content > size - sizeof(note))
            return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4
            && memcmp(at + sizeof(note), "GNU", 4) == 0 && note.n_descsz >= 8) {
            *id = at + sizeof(note) + name;
            *id_size = note.n_descsz;
            return true;
        }
        at += sizeof(note) + name + content;
        size -= sizeof(note) + name + content;
    }
    return false;
}

// Appends the build id if the notes of a segment have one.
static bool append_id(struct jc_buffer *build, int fd, const Elf64_Phdr *segment)
{
    unsigned char *notes = NULL;
    const unsigned char *id;
    size_t size = segment->p_filesz, id_size;
    if (segment->p_type == PT_NOTE && size <= MAX_NOTES && segment->p_offset <= INT64_MAX)
        notes = malloc(size + 1);
    bool found = notes && read_at(fd, notes, size, segment->p_offset)
        && find_id(notes, size, &id, &id_size);
    for (size_t i = 0; found && i < id_size; i++)
        jc_buffer_print(build, "%02x", id[i]);
    free(notes);
    return found;
}

static bool append_build_id(struct jc_buffer *build, int fd)
{
    Elf64_Ehdr header;
    if (!read_at(fd, &header, sizeof(header), 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0
        || header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)
        || header.e_phoff > INT32_MAX || header.e_phnum > MAX_SEGMENTS)
        return false;
    for (size_t i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        if (!read_at(fd, &segment, sizeof(segment), header.e_phoff + i * sizeof(segment)))
            return false;
        if (append_id(build, fd, &segment))
            return true;
    }
    return false;
}

static bool append_digest(struct jc_buffer *build, int fd)
{
    enum { BLOCK = 1 << 20 };
    XXH3_state_t *state = XXH3_createState();
    unsigned char *block = malloc(BLOCK);
    ssize_t got = -1;
    if (state && block) {
        XXH3_128bits_reset(state);
        for (off_t at = 0; (got = pread(fd, block, BLOCK, at)) != 0; at += got > 0 ? got : 0) {
            if (got > 0)
                XXH3_128bits_update(state, block, (size_t) got);
            else if (errno != EINTR)
                break;
        }
    }
    if (got == 0) {
        XXH128_hash_t hash = XXH3_128bits_digest(state);
        jc_buffer_print(build, "%016llx%016llx", (unsigned long long) hash.high64,
                        (unsigned long long) hash.low64);
    }
    free(block);
    XXH3_freeState(state);
    return got == 0;
}

static bool append_build(struct jc_buffer *build, const char *path)
{
    struct stat status;
    // Opening a pipe would wait for its other end.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool read = fd >= 0 && fstat(fd, &status) == 0;
    if (read && !S_ISREG(status.st_mode)) {
        errno = EINVAL;
        read = false;
    }
    read = read && (append_build_id(build, fd) || append_digest(build, fd));
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return read;
}

char *jc_build_read(const char *library, const char *builtins)
{
    struct jc_buffer build = {0};
    bool read = append_build(&build, library);
    jc_buffer_string(&build, "+");
    read = read && append_build(&build, builtins);
    if (!read) {
        int saved = errno;
        jc_buffer_finish(&build);
        errno = saved;
        return NULL;
    }
    char *text = jc_buffer_take(&build);
    if (!text)
        errno = ENOMEM;
    return text;
}
