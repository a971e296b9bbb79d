#include "bulletin.h"

extern int jc_bulletin_stub;
int jc_bulletin_stub;
