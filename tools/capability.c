#include "capability.h"

#include <ctype.h>
#include <string.h>

#include "memory.h"

struct capability {
    int number;  // 90; 0: the text is none
    char suffix; // 'a', 'f', or 0
};

// As jc_context_arch does, but that it takes no 'f'.
static struct capability read_capability(const char *text)
{
    struct capability read = {0};
    int digits = 0;
    if (strncmp(text, "sm_", 3) == 0)
        text += 3;
    for (; isdigit((unsigned char) *text) && digits < 4; digits++)
        read.number = 10 * read.number + (*text++ - '0');
    if (*text == '.' && digits > 0 && isdigit((unsigned char) text[1])) {
        read.number = 10 * read.number + (text[1] - '0');
        digits++;
        text += 2;
    }
    if (*text == 'a' || *text == 'f')
        read.suffix = *text++;
    return *text || digits < 2 || digits > 4 ? (struct capability){0} : read;
}

char *jc_capability_fault(const char *asked)
{
    struct capability read = read_capability(asked);
    if (read.number && read.suffix == 'f')
        return jc_make_text("'%s': code for a family of architectures, suffix f, is not made;"
                            " write sm_%da", asked, read.number);
    if (read.number)
        return NULL;
    if (strchr(asked, ','))
        return jc_make_text("'%s': give each architecture by itself; repeat --arch", asked);
    return jc_make_text("'%s' is not an architecture; write a compute capability, such as 9.0, or"
                        " a name, such as sm_90a", asked);
}

bool jc_capability_is(const char *asked, const char *arch)
{
    struct capability wanted = read_capability(asked), read = read_capability(arch);
    return read.number && read.number == wanted.number &&
           (!wanted.suffix || wanted.suffix == read.suffix);
}
