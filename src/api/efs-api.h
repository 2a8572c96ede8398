/* SPDX-License-Identifier: BSD-3-Clause */
/* The header of the API of echofs: programs written for echofs compile unchanged; link them with
 * -lefs. efs.h has all declarations. */
#ifndef EFS_API_H
#define EFS_API_H

#include <stdarg.h>

#include "efs.h"

#endif /* EFS_API_H */
