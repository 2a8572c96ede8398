/* SPDX-License-Identifier: BSD-3-Clause */
/* pMEMCPY's header name. See pmemcpy.hpp. */
#ifndef PMEMCPY_PMEMCPY_H
#define PMEMCPY_PMEMCPY_H

#include "pmemcpy.hpp"

#endif /* PMEMCPY_PMEMCPY_H */
