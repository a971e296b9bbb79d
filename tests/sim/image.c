#include "image.h"

#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// A cubin is an ELF file of 64 bits. What is known of the rest was found by compiling kernels with
// known properties with NVRTC 12.4, 12.9 and 13.0:
//
//   e_ident[EI_ABIVERSION]  7: e_flags has the architecture in bits 0 to 7, "a" in bit 11
//                           8: in bits 8 to 15, "a" in bit 3 or, from 13.0, in .nv.compat
//   .symtab                 a kernel is an STT_FUNC whose section is .text.NAME
//   .nv.shared.NAME         its size: static shared memory; from 9.0 on with 1 KiB of the system's
//   .nv.info                attributes, with the index of a symbol: registers, stack frame
//   .nv.info.NAME           attributes of one kernel: parameters, launch bounds, cluster, toolkit
//   .nv.compat              attributes of the file
//
// An attribute is a byte with its form, a byte with its number, and two bytes, which are its value
// or, in form 4, how many bytes follow.
enum form { FORM_NONE = 1, FORM_BYTE = 2, FORM_HALF = 3, FORM_SIZED = 4 };

enum attribute {
    MAX_THREADS = 0x05,      // x, y, z
    FRAME_SIZE = 0x11,       // symbol, bytes
    PARAMETER = 0x17,        // index, ordinal: 16 bits, offset: 16 bits, size: from bit 18 on
    REGISTERS = 0x2f,        // symbol, count
    TOOLKIT = 0x37,          // 130 for 13.0
    CLUSTER = 0x3d,          // x, y, z
    WIDE_PARAMETER = 0x45,   // index, ordinal: 16 bits, offset: 16 bits, size: 24 bits
};
enum { COMPAT_ONLY_THIS = 0x09 };

enum { SYSTEM_SHARED = 1024, MAX_IMAGE = 1 << 30, MAX_PARAMETERS = 4096 };

struct file {
    const unsigned char *data;
    size_t size;
    Elf64_Ehdr header;
    Elf64_Shdr names;
};

static bool lies_within(const struct file *file, uint64_t offset, uint64_t size)
{
    return offset <= file->size && size <= file->size - offset;
}

// --- ELF -----------------------------------------------------------------------------------------

static bool read_section(const struct file *file, size_t index, Elf64_Shdr *section)
{
    if (index >= file->header.e_shnum)
        return false;
    memcpy(section, file->data + file->header.e_shoff + index * sizeof(*section),
           sizeof(*section));
    return section->sh_type == SHT_NOBITS
        || lies_within(file, section->sh_offset, section->sh_size);
}

// The file ends with the last thing that it mentions.
static bool measure(struct file *file)
{
    const Elf64_Ehdr *header = &file->header;
    if (header->e_shoff > MAX_IMAGE)
        return false;
    file->size = header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr);
    size_t end = file->size;
    for (size_t i = 0; i < header->e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, file->data + header->e_shoff + i * sizeof(section), sizeof(section));
        if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL)
            continue;
        if (section.sh_offset > MAX_IMAGE || section.sh_size > MAX_IMAGE)
            return false;
        if (section.sh_offset + section.sh_size > end)
            end = section.sh_offset + section.sh_size;
    }
    file->size = end;
    return true;
}

static bool open_file(struct file *file, const void *data)
{
    enum { EM_CUDA_NUMBER = 190 };
    // The mark first: what is no ELF file may be shorter than the header of one.
    if (memcmp(data, ELFMAG, SELFMAG) != 0)
        return false;
    file->data = data;
    memcpy(&file->header, data, sizeof(file->header));
    const Elf64_Ehdr *header = &file->header;
    return header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_machine == EM_CUDA_NUMBER
        && header->e_type == ET_EXEC && header->e_shentsize == sizeof(Elf64_Shdr)
        && measure(file) && read_section(file, header->e_shstrndx, &file->names)
        && file->names.sh_type == SHT_STRTAB;
}

// A name out of a table of names, or NULL.
static const char *read_name(const struct file *file, const Elf64_Shdr *table, uint64_t at)
{
    if (at >= table->sh_size)
        return NULL;
    const char *name = (const char *) file->data + table->sh_offset + at;
    return memchr(name, '\0', table->sh_size - at) ? name : NULL;
}

// Whether a section is called `stem` with `name` behind it.
static bool is_called(const struct file *file, const Elf64_Shdr *section, const char *stem,
                      const char *name)
{
    const char *found = read_name(file, &file->names, section->sh_name);
    size_t length = strlen(stem);
    return found && strncmp(found, stem, length) == 0 && strcmp(found + length, name) == 0;
}

static bool find_section(const struct file *file, const char *stem, const char *name,
                         Elf64_Shdr *section)
{
    for (size_t i = 1; i < file->header.e_shnum; i++)
        if (read_section(file, i, section) && is_called(file, section, stem, name))
            return true;
    return false;
}

// --- attributes ----------------------------------------------------------------------------------

struct attributes {
    const unsigned char *at, *end;
    bool damaged;
    // The one that was read.
    unsigned char form, number;
    unsigned half; // the value, or the length
    const unsigned char *value;
};

static struct attributes list_attributes(const struct file *file, const Elf64_Shdr *section)
{
    const unsigned char *start = file->data + section->sh_offset;
    size_t size = section->sh_type == SHT_NOBITS ? 0 : section->sh_size;
    return (struct attributes){.at = start, .end = start + size};
}

static bool next_attribute(struct attributes *attributes)
{
    if (attributes->at == attributes->end)
        return false;
    size_t left = (size_t) (attributes->end - attributes->at);
    if (left < 4) {
        attributes->damaged = true;
        return false;
    }
    attributes->form = attributes->at[0];
    attributes->number = attributes->at[1];
    attributes->half = attributes->at[2] | (unsigned) attributes->at[3] << 8;
    attributes->value = attributes->at + 4;
    size_t size = attributes->form == FORM_SIZED ? attributes->half : 0;
    if (size > left - 4 || attributes->form < FORM_NONE || attributes->form > FORM_SIZED) {
        attributes->damaged = true;
        return false;
    }
    attributes->at += 4 + size;
    return true;
}

// Whether it is of this number and has this many words; gives them.
static bool is_attribute(const struct attributes *attributes, enum attribute number,
                         unsigned num_words, uint32_t *words)
{
    if (attributes->form != FORM_SIZED || attributes->number != number
        || attributes->half < num_words * 4)
        return false;
    memcpy(words, attributes->value, num_words * sizeof(*words));
    return true;
}

static bool read_file_attributes(const struct file *file, struct image *image)
{
    Elf64_Shdr section;
    if (!find_section(file, ".nv.compat", "", &section))
        return true;
    struct attributes attributes = list_attributes(file, &section);
    while (next_attribute(&attributes))
        if (attributes.number == COMPAT_ONLY_THIS && attributes.form == FORM_BYTE)
            image->only_this |= (attributes.half & 0xff) == 1;
    return !attributes.damaged;
}

static bool set_parameter(struct image_function *function, uint32_t ordinal, uint32_t offset,
                          uint32_t size)
{
    if (ordinal >= MAX_PARAMETERS)
        return false;
    if (ordinal >= function->num_parameters) {
        struct image_parameter *grown =
            realloc(function->parameters, (ordinal + 1) * sizeof(*grown));
        if (!grown)
            return false;
        memset(grown + function->num_parameters, 0,
               (ordinal + 1 - function->num_parameters) * sizeof(*grown));
        function->parameters = grown;
        function->num_parameters = ordinal + 1;
    }
    function->parameters[ordinal] = (struct image_parameter){offset, size};
    return true;
}

static bool read_function_attributes(const struct file *file, struct image *image,
                                     struct image_function *function)
{
    Elf64_Shdr section;
    if (!find_section(file, ".nv.info.", function->name, &section))
        return true;
    struct attributes attributes = list_attributes(file, &section);
    bool sound = true;
    while (sound && next_attribute(&attributes)) {
        uint32_t words[3];
        if (is_attribute(&attributes, PARAMETER, 3, words))
            sound = set_parameter(function, words[1] & 0xffff, words[1] >> 16, words[2] >> 18);
        else if (is_attribute(&attributes, WIDE_PARAMETER, 3, words))
            sound = set_parameter(function, words[1] & 0xffff, words[1] >> 16,
                                  words[2] & 0xffffff);
        else if (is_attribute(&attributes, MAX_THREADS, 3, words))
            function->max_threads = words[0] * words[1] * words[2];
        else if (is_attribute(&attributes, CLUSTER, 3, words))
            memcpy(function->cluster, words, sizeof(function->cluster));
        else if (is_attribute(&attributes, TOOLKIT, 1, words) && words[0] > image->toolkit)
            image->toolkit = words[0];
    }
    return sound && !attributes.damaged;
}

// Registers and stack stand in one section for all of them.
static bool read_resources(const struct file *file, uint32_t symbol,
                           struct image_function *function)
{
    Elf64_Shdr section;
    if (!find_section(file, ".nv.info", "", &section))
        return false;
    struct attributes attributes = list_attributes(file, &section);
    while (next_attribute(&attributes)) {
        uint32_t words[2];
        if (is_attribute(&attributes, REGISTERS, 2, words) && words[0] == symbol)
            function->registers = words[1];
        else if (is_attribute(&attributes, FRAME_SIZE, 2, words) && words[0] == symbol)
            function->local = words[1];
    }
    return !attributes.damaged;
}

// --- functions -----------------------------------------------------------------------------------

static bool add_function(const struct file *file, struct image *image, const char *name,
                         uint32_t symbol)
{
    size_t count = image->num_functions;
    struct image_function *grown = realloc(image->functions, (count + 1) * sizeof(*grown));
    if (!grown)
        return false;
    image->functions = grown;
    struct image_function *function = &grown[image->num_functions++];
    *function = (struct image_function){.name = strdup(name)};
    if (!function->name || !read_function_attributes(file, image, function)
        || !read_resources(file, symbol, function))
        return false;
    Elf64_Shdr shared;
    if (find_section(file, ".nv.shared.", name, &shared)) {
        unsigned system = image->major >= 9 ? SYSTEM_SHARED : 0;
        function->static_shared =
            shared.sh_size > system ? (unsigned) (shared.sh_size - system) : 0;
    }
    return true;
}

static bool read_symbols(const struct file *file, const Elf64_Shdr *table, struct image *image)
{
    Elf64_Shdr names, section;
    if (!read_section(file, table->sh_link, &names) || names.sh_type != SHT_STRTAB)
        return false;
    for (uint32_t i = 0; i < table->sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, file->data + table->sh_offset + i * sizeof(symbol), sizeof(symbol));
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF)
            continue;
        const char *name = read_name(file, &names, symbol.st_name);
        if (!name || !read_section(file, symbol.st_shndx, &section))
            return false;
        if (is_called(file, &section, ".text.", name) && !add_function(file, image, name, i))
            return false;
    }
    return true;
}

static bool read_architecture(const struct file *file, struct image *image)
{
    uint32_t flags = file->header.e_flags;
    unsigned arch;
    switch (file->header.e_ident[EI_ABIVERSION]) {
    case 7:
        arch = flags & 0xff;
        image->only_this = flags >> 11 & 1;
        break;
    case 8:
        arch = flags >> 8 & 0xff;
        image->only_this = flags >> 3 & 1;
        break;
    default:
        return false;
    }
    image->major = arch / 10;
    image->minor = arch % 10;
    return true;
}

bool image_init(struct image *image, const void *data)
{
    struct file file = {0};
    *image = (struct image){0};
    if (!open_file(&file, data) || !read_architecture(&file, image)
        || !read_file_attributes(&file, image))
        goto fail;
    image->size = file.size;
    for (size_t i = 1; i < file.header.e_shnum; i++) {
        Elf64_Shdr section;
        if (!read_section(&file, i, &section))
            goto fail;
        if (section.sh_type == SHT_SYMTAB && !read_symbols(&file, &section, image))
            goto fail;
    }
    return true;

fail:
    image_finish(image);
    return false;
}

void image_finish(struct image *image)
{
    for (unsigned i = 0; i < image->num_functions; i++) {
        free(image->functions[i].name);
        free(image->functions[i].parameters);
    }
    free(image->functions);
    *image = (struct image){0};
}
