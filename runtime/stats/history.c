#include "history.h"

extern int jc_history_stub;
int jc_history_stub;
