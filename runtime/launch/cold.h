// For what a launch calls only where something is unusual or wrong: such functions, and the code
// that calls them, are then kept away from the code of every launch.

#ifndef JC_COLD_H
#define JC_COLD_H

#define JC_COLD __attribute__((cold))

#endif
