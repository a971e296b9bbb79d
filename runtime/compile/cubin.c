#include "cubin.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

// A cubin is an ELF file of 64 bits. Its header tells where the table of sections is; the section
// of type SHT_SYMTAB is the table of symbols, and its sh_link the section of their names. Of what
// the file says nothing is believed before it was compared with its size.

struct cubin {
    const char *data;
    size_t size;
    Elf64_Ehdr header;
};

static bool lies_within(const struct cubin *cubin, uint64_t offset, uint64_t size)
{
    return offset <= cubin->size && size <= cubin->size - offset;
}

static bool read_header(struct cubin *cubin)
{
    if (!lies_within(cubin, 0, sizeof(cubin->header)))
        return false;
    memcpy(&cubin->header, cubin->data, sizeof(cubin->header));
    const Elf64_Ehdr *header = &cubin->header;
    return memcmp(header->e_ident, ELFMAG, SELFMAG) == 0
        && header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_type == ET_EXEC
        && header->e_shentsize == sizeof(Elf64_Shdr)
        && lies_within(cubin, header->e_shoff, (uint64_t) header->e_shnum * sizeof(Elf64_Shdr));
}

// The section `index` with its content inside of the file.
static bool read_section(const struct cubin *cubin, size_t index, Elf64_Shdr *section)
{
    if (index >= cubin->header.e_shnum)
        return false;
    memcpy(section, cubin->data + cubin->header.e_shoff + index * sizeof(*section),
           sizeof(*section));
    return section->sh_type == SHT_NOBITS
        || lies_within(cubin, section->sh_offset, section->sh_size);
}

static bool is_named(const struct cubin *cubin, const Elf64_Shdr *names, uint64_t at,
                     const char *name)
{
    size_t size = strlen(name) + 1;
    return at < names->sh_size && size <= names->sh_size - at
        && memcmp(cubin->data + names->sh_offset + at, name, size) == 0;
}

static bool table_defines(const struct cubin *cubin, const Elf64_Shdr *table, const char *name)
{
    Elf64_Shdr names;
    if (!read_section(cubin, table->sh_link, &names) || names.sh_type != SHT_STRTAB)
        return false;
    for (uint64_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, cubin->data + table->sh_offset + i * sizeof(symbol), sizeof(symbol));
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx != SHN_UNDEF
            && is_named(cubin, &names, symbol.st_name, name))
            return true;
    }
    return false;
}

bool jc_cubin_defines(const void *data, size_t size, const char *symbol)
{
    struct cubin cubin = {.data = data, .size = size};
    Elf64_Shdr section;
    if (!read_header(&cubin))
        return false;
    for (size_t i = 0; i < cubin.header.e_shnum; i++) {
        if (read_section(&cubin, i, &section) && section.sh_type == SHT_SYMTAB
            && table_defines(&cubin, &section, symbol))
            return true;
    }
    return false;
}
