#include "kernel.h"

#include "device.h"

void jc_kernel_collect(struct jc_kernel *kernel, struct jc_sheet *sheet)
{
    struct jc_sheet_kernel *row =
        jc_sheet_kernel(sheet, kernel->tmpl->name, kernel->device->info.ordinal);
    uint64_t served[2];
    jc_tally_sum(kernel->member.cell, served);
    if (row)
        row->total.launches += served[0] + served[1];
}
