// Strided copies by unit: what the copy commands of OpenCL cannot express. One work item moves one unit.
//
// block: [0] units in all, [1] loops, [2] first source byte, [3] first target byte, then for each loop from the
// innermost on: rounds, bytes between rounds at the source, bytes between rounds at the target.

#define COPY(UNIT, NAME)                                                             \
    __kernel void copy_##NAME(__global const uchar *source, __global uchar *target,  \
                              __global const ulong *block) {                         \
        ulong rest = get_global_id(0);                                               \
        if (rest >= block[0]) return;                                                \
        ulong from = block[2], to = block[3];                                        \
        for (ulong at = 4; at < 4 + 3 * block[1]; at += 3) {                         \
            ulong round = rest % block[at];                                          \
            rest /= block[at];                                                       \
            from += round * block[at + 1];                                           \
            to += round * block[at + 2];                                             \
        }                                                                            \
        *(__global UNIT *)(target + to) = *(__global const UNIT *)(source + from);   \
    }

COPY(uchar, 1)
COPY(ushort, 2)
COPY(uint, 4)
COPY(ulong, 8)
