// Threads that outlive a call: to start one takes as long as to code some tiles.
#pragma once

#include <functional>

namespace lynx {

// Runs `body` on `threads` threads at once, this one among them, and returns when all have returned; on fewer where the
// system has no more to give, or others hold them. Any thread may call it; the child of a fork starts threads anew.
// What `body` throws on this thread is passed on; on another it ends the process.
void OnThreads(int threads, const std::function<void()>& body);

}  // namespace lynx
