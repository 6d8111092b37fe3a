package nsthread_test

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whoever runs there may change the thread as he likes: it is never the main thread,
// never another's at the same time, and goes away.
func TestAThreadServesOnce(t *testing.T) {
	const runs = 32
	var mu sync.Mutex
	threads := map[int]bool{}
	together := make(chan struct{})
	var wg sync.WaitGroup
	for range runs {
		wg.Go(func() {
			err := nsthread.Run("", func() error {
				mu.Lock()
				threads[unix.Gettid()] = true
				if len(threads) == runs {
					close(together)
				}
				mu.Unlock()
				<-together
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for tid := range threads {
		if tid == os.Getpid() {
			t.Error("the main thread was used")
		}
		for { // the kernel ends it a moment after the result
			_, err := os.Lstat("/proc/self/task/" + strconv.Itoa(tid))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			runtime.Gosched()
		}
	}
}

func TestTheResultComesBack(t *testing.T) {
	sorry := errors.New("sorry")
	if err := nsthread.Run("", func() error { return sorry }); !errors.Is(err, sorry) {
		t.Error(err)
	}
}

func TestWithoutTheNamespaceNothingRuns(t *testing.T) {
	for path, want := range map[string]string{
		"/absent/namespace": "/absent/namespace",
		os.Args[0]:          os.Args[0], // a file, but no namespace
	} {
		err := nsthread.Run(path, func() error {
			t.Errorf("ran in %s", path)
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
