// Metrics for others to collect.
//
// They are OpenMetrics text. The textfile collector of Prometheus's node_exporter reads files whose
// names end in ".prom", and of those only the older text format of Prometheus. So such a file gets
// that. It would show a histogram with a sum and a count of 0, which nobody has counted; so the
// buckets stand alone there, which is all that quantiles are taken of.

#ifndef JC_TOOL_EXPOSITION_H
#define JC_TOOL_EXPOSITION_H

#include <jitcache/stats.h>

// Prints them. 0, or the status to end with after telling why; so too below.
int jc_exposition_print(const struct jc_stats *stats);

// Replaces a file as a whole, so that nobody reads half of it; everybody may read it, since the
// collector is another user.
int jc_exposition_write(const struct jc_stats *stats, const char *path);

#endif
