#include "sheet.h"

extern int jc_sheet_text_stub;
int jc_sheet_text_stub;
