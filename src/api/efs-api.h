/* The header of echofs' API: programs written for it compile unchanged, and are linked with -lefs.
 * All of it is efs.h's. */
#ifndef EFS_API_H
#define EFS_API_H

#include <stdarg.h>

#include "efs.h"

#endif /* EFS_API_H */
