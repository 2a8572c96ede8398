#pragma once
// Asking an instance whose worker may die meanwhile.

#include <chrono>

#include "control/client.hpp"
#include "control/instances.hpp"

namespace efs::control {

/// Is this what an asker sees of a worker that died, or is being replaced? Its successor has what
/// it had.
bool is_lost(int code);

/// Connects to the instance as Client::connect() does; where its worker is just being replaced, to
/// the successor, if there is one within `patience`. Nothing has been asked before: it can be done
/// for any request.
Result<Client> connect_soon(const Instance& instance, int seconds,
                            std::chrono::seconds patience = std::chrono::seconds(10));

/// Asks the instance. Where its worker dies meanwhile, its successor is asked again, once it has
/// replayed the journal: while the supervisor lives there will be one. A refusal is an answer (`ok`
/// is false); an error here is one of the way there or back. Who says nothing for `seconds` will
/// not: ETIMEDOUT. Where nobody can be asked for `patience` there is no successor: what the last
/// asking saw. A `deadline` in the request, in seconds, counts from here: a successor is told what
/// is left of it, and in `asked_ago` how many seconds are gone (0: there is none, but the job file
/// may have one).
Result<Json> ask_until_answered(const Instance& instance, const Json& request, int seconds,
                                const std::function<void(const Json&)>& progress = {},
                                std::chrono::seconds patience = std::chrono::minutes(2));

}  // namespace efs::control
