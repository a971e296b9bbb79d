#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/compile/build.h"
#include "scratch.h"

// A library of one segment, the notes.
struct library {
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    Elf64_Nhdr other;
    char other_name[4], other_content[4];
    Elf64_Nhdr note;
    char name[4];
    unsigned char id[20];
    char code[64];
};

static struct library library_of(unsigned char mark)
{
    struct library library = {
        .header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64}, .e_phnum = 1,
                   .e_phoff = offsetof(struct library, segment),
                   .e_phentsize = sizeof(Elf64_Phdr)},
        .segment = {.p_type = PT_NOTE, .p_offset = offsetof(struct library, other),
                    .p_filesz = offsetof(struct library, code) - offsetof(struct library, other)},
        .other = {.n_namesz = 3, .n_descsz = 2, .n_type = NT_GNU_BUILD_ID},
        .other_name = "ab",
        .note = {.n_namesz = 4, .n_descsz = 20, .n_type = NT_GNU_BUILD_ID},
        .name = "GNU",
    };
    memset(library.id, mark, sizeof(library.id));
    return library;
}

static void put(const char *name, const void *data, size_t size)
{
    FILE *stream = fopen(scratch_path(name), "w");
    assert_true(stream && fwrite(data, 1, size, stream) == size && fclose(stream) == 0);
}

static void assert_build(const char *library, const char *builtins, const char *expected)
{
    char *build = jc_build_read(scratch_path(library), scratch_path(builtins));
    assert_non_null(build);
    assert_string_equal(build, expected);
    free(build);
}

// That of a file which has no build id that could be read: 32 digits of all its bytes.
static void assert_digest(const struct library *library, size_t size)
{
    char first[128], *build;
    put("library", library, size);
    assert_non_null(build = jc_build_read(scratch_path("library"), scratch_path("library")));
    assert_int_equal(strlen(build), 2 * 32 + 1);
    assert_memory_equal(build, build + 33, 32);
    strcpy(first, build);
    free(build);
    struct library other = *library;
    ((unsigned char *) &other)[size - 1] ^= 1;
    put("library", &other, size);
    assert_non_null(build = jc_build_read(scratch_path("library"), scratch_path("library")));
    assert_string_not_equal(build, first);
    free(build);
}

static void the_linkers_build_id_is_taken_where_there_is_one(void **state)
{
    (void) state;
    struct library one = library_of(0x0a), other = library_of(0xb0);
    put("one", &one, sizeof(one));
    put("other", &other, sizeof(other));
    assert_build("one", "other", "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
                                 "+b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0");
    // The rest of the file does not matter then.
    one.code[0] = 1;
    put("other", &one, sizeof(one));
    assert_build("other", "one", "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
                                 "+0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a");
}

static void a_file_without_one_is_told_by_its_bytes(void **state)
{
    (void) state;
    struct library library = library_of(1);
    library.header.e_phnum = 0;
    assert_digest(&library, sizeof(library));
    library = library_of(1);
    library.header.e_ident[0] = 'x';
    assert_digest(&library, sizeof(library));
    library = library_of(1);
    library.note.n_type = NT_GNU_ABI_TAG;
    assert_digest(&library, sizeof(library));
}

static void sizes_and_offsets_that_lie_are_not_believed(void **state)
{
    (void) state;
    struct library library;
    static const uint64_t lies[] = {UINT64_MAX, INT64_MAX, 1 << 20, UINT32_MAX, 65537,
                                    sizeof(struct library)};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        library = library_of(1);
        library.segment.p_offset = lies[i];
        assert_digest(&library, sizeof(library));
        library = library_of(1);
        library.segment.p_filesz = lies[i];
        assert_digest(&library, sizeof(library));
        library = library_of(1);
        library.header.e_phoff = lies[i];
        assert_digest(&library, sizeof(library));
        library = library_of(1);
        library.note.n_descsz = (uint32_t) lies[i];
        assert_digest(&library, sizeof(library));
        library = library_of(1);
        library.note.n_namesz = (uint32_t) lies[i];
        assert_digest(&library, sizeof(library));
    }
    library = library_of(1);
    library.header.e_phnum = UINT16_MAX;
    library.segment.p_type = PT_LOAD;
    assert_digest(&library, sizeof(library));
}

static void a_file_that_ends_anywhere_is_told_by_its_bytes(void **state)
{
    (void) state;
    const struct library library = library_of(1);
    for (size_t size = 1; size < offsetof(struct library, code); size++)
        assert_digest(&library, size);
}

static void what_cannot_be_read_has_no_build(void **state)
{
    (void) state;
    const struct library library = library_of(1);
    put("library", &library, sizeof(library));
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0);
    static const char *const names[] = {"missing", "pipe", "."};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_null(jc_build_read(scratch_path(names[i]), scratch_path("library")));
        assert_int_equal(errno, i == 0 ? ENOENT : EINVAL);
        assert_null(jc_build_read(scratch_path("library"), scratch_path(names[i])));
        assert_int_equal(errno, i == 0 ? ENOENT : EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define IN_A_FOLDER(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
        IN_A_FOLDER(the_linkers_build_id_is_taken_where_there_is_one),
        IN_A_FOLDER(a_file_without_one_is_told_by_its_bytes),
        IN_A_FOLDER(sizes_and_offsets_that_lie_are_not_believed),
        IN_A_FOLDER(a_file_that_ends_anywhere_is_told_by_its_bytes),
        IN_A_FOLDER(what_cannot_be_read_has_no_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
