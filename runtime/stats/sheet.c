#include "sheet.h"

#include <stdlib.h>
#include <string.h>

void jc_sheet_finish(struct jc_sheet *sheet) { *sheet = (struct jc_sheet){0}; }
struct jc_sheet_kernel *jc_sheet_kernel(struct jc_sheet *sheet, const char *name, int device)
{
    (void) sheet; (void) name; (void) device;
    return NULL;
}
