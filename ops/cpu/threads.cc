#include "threads.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace lynx {
namespace {

constexpr int kMost = 256;

struct Job {
  const std::function<void()>* body;
  int wanted;  // threads that may still join
  int running;
};

class Pool {
 public:
  void Run(int helpers, const std::function<void()>& body) {
    Job job{&body, helpers, 0};
    {
      std::lock_guard<std::mutex> lock(mutex_);
      jobs_.push_back(&job);
      wanted_ += helpers;
      Grow();
    }
    for (int i = 0; i < helpers; ++i) wake_.notify_one();
    struct Last {  // also if body throws: the others must not outlive what they work on
      Pool* pool;
      Job* job;
      ~Last() { pool->Finish(job); }
    } last{this, &job};
    body();
  }

 private:
  void Grow() {
    try {
      for (; threads_ < std::min(busy_ + wanted_, kMost); ++threads_) std::thread([this] { Loop(); }).detach();
    } catch (const std::system_error&) {
    }
  }

  void Loop() noexcept {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return !jobs_.empty(); });
      Job* const job = jobs_.front();
      if (--job->wanted == 0) jobs_.pop_front();
      ++job->running, ++busy_, --wanted_;
      lock.unlock();
      (*job->body)();
      lock.lock();
      --busy_;
      if (--job->running == 0) done_.notify_all();
    }
  }

  void Finish(Job* job) {
    std::unique_lock<std::mutex> lock(mutex_);
    wanted_ -= job->wanted;
    jobs_.erase(std::remove(jobs_.begin(), jobs_.end(), job), jobs_.end());
    done_.wait(lock, [job] { return job->running == 0; });
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<Job*> jobs_;  // those that threads may join
  int threads_ = 0, busy_ = 0, wanted_ = 0;
};

// Never destroyed: its threads wait in it to the end of the process. A fork takes the parent's threads away.
Pool* pool = [] {
  pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
  return new Pool;
}();

}  // namespace

void OnThreads(int threads, const std::function<void()>& body) {
  if (threads > 1) {
    pool->Run(threads - 1, body);
  } else {
    body();
  }
}

}  // namespace lynx
