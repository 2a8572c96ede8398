# SPDX-License-Identifier: BSD-3-Clause
# Made by cmake/list_sources.sh.
set(sources
  filesystem_model_test.cpp
  ledger_model_test.cpp
)
