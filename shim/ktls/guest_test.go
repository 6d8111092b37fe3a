//go:build ktls

package ktls

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// modules is where the guest has those that the kernel may ask for.
const modules = "/modules"

// TestMain runs as the guest's init, as its modprobe, or as another process of a test: e2e/ktls/test.sh.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "modprobe":
		load()
		return
	case os.Getenv(roleEnv) != "":
		if err := play(os.Getenv(roleEnv)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	case os.Getpid() != 1:
		fmt.Println("these tests run in a guest of their own: make test-ktls")
		os.Exit(1)
	}
	err := errors.Join(unix.Mount("proc", "/proc", "proc", 0, ""), unix.Mount("sys", "/sys", "sysfs", 0, ""),
		unix.Mount("dev", "/dev", "devtmpfs", 0, ""), loopback())
	if err != nil {
		fmt.Println("preparing the guest:", err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(int) {
		unix.Sync()
		unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}))
}

// load loads all modules, whatever needs which.
func load() {
	names, _ := filepath.Glob(modules + "/*.ko")
	for loaded := true; loaded; {
		loaded = false
		for _, name := range names {
			f, err := os.Open(name)
			if err != nil {
				continue
			}
			loaded = unix.FinitModule(int(f.Fd()), "", 0) == nil || loaded
			f.Close()
		}
	}
}

// loopback brings the interface lo up.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(r)))
	if errno != 0 {
		return errno
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return l.Close()
}
