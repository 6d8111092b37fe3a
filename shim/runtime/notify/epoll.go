package notify

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// poll is a registration of a socket with epoll(7).
type poll struct {
	epoll  int // the descriptor in the program
	events uint32
	data   uint64
}

// described is what /proc says of a socket's descriptor.
type described struct {
	cloexec bool
	polls   []poll
}

const (
	// descriptorsLimit is how many descriptors of a program are looked at for epoll(7).
	descriptorsLimit = 1024
	// epollsLimit is how many of them are read, if they are epoll's: an event loop has one, and a program some for each
	// core.
	epollsLimit = 128
	epollLink   = "anon_inode:[eventpoll]"
	// readLimit is what is read of a file of /proc at once, in bytes; few have more.
	readLimit = 4 << 10
	// textLimit bounds what is read for a call, in bytes: registrations have some 80 each.
	textLimit = 1 << 20
)

// describe looks at a socket's descriptor. Of one that blocks nobody polls. It makes plain system calls: the program
// waits, and each os.File costs some of them more.
func describe(tid, number int, blocks bool) (d described) {
	proc := "/proc/" + strconv.Itoa(tid)
	d.cloexec = cloexec(read(proc+"/fdinfo/"+strconv.Itoa(number), readLimit))
	if blocks {
		return d
	}
	dir, err := unix.Open(proc+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return d
	}
	defer unix.Close(dir)
	var names []string
	entries := make([]byte, readLimit)
	for len(names) < descriptorsLimit {
		n, err := unix.ReadDirent(dir, entries)
		if err != nil || n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(entries[:n], -1, names)
	}
	to := make([]byte, len(epollLink)+1)
	epolls, left := 0, textLimit
	for _, name := range names {
		if epolls == epollsLimit || left <= 0 {
			break
		}
		if n, err := unix.Readlinkat(dir, name, to); err != nil || string(to[:n]) != epollLink {
			continue
		}
		if epoll, err := strconv.Atoi(name); err == nil {
			text := read(proc+"/fdinfo/"+name, left)
			epolls, left = epolls+1, left-len(text)
			d.polls = append(d.polls, registrations(text, epoll, number)...)
		}
	}
	return d
}

// read returns a file of /proc, and as much of a long one as the limit, which may be passed by readLimit.
func read(path string, limit int) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var all []byte
	part := make([]byte, readLimit)
	for len(all) < limit {
		n, err := unix.Read(fd, part)
		if err != nil || n <= 0 {
			break
		}
		all = append(all, part[:n]...)
		if n < readLimit/2 { // a file of /proc fills what is asked for, but for a line
			break
		}
	}
	return string(all)
}

// cloexec reads the flags of a descriptor in its fdinfo.
func cloexec(info string) bool {
	for line := range strings.Lines(info) {
		if flags, is := strings.CutPrefix(line, "flags:"); is {
			n, err := strconv.ParseUint(strings.TrimSpace(flags), 8, 64)
			return err == nil && n&unix.O_CLOEXEC != 0
		}
	}
	return false
}

// registrations are those of a descriptor in the fdinfo of an epoll's: lines as "tfd: 5 events: 19 data: 5 pos:0
// ino:…".
func registrations(info string, epoll, number int) (all []poll) {
	for line := range strings.Lines(info) {
		f := strings.Fields(line)
		if len(f) < 6 || f[0] != "tfd:" || f[2] != "events:" || f[4] != "data:" || f[1] != strconv.Itoa(number) {
			continue
		}
		events, err := strconv.ParseUint(f[3], 16, 32)
		data, err2 := strconv.ParseUint(f[5], 16, 64)
		if err == nil && err2 == nil {
			all = append(all, poll{epoll, uint32(events), data})
		}
	}
	return all
}

// leader is the process of a thread.
func leader(tid int) (int, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if id, is := strings.CutPrefix(line, "Tgid:"); is {
			return strconv.Atoi(strings.TrimSpace(id))
		}
	}
	return 0, errors.New("a thread without a process")
}

// fixer registers connections with the epolls of the sockets that they replace. The kernel knows a registration by
// the number of the descriptor as well, and forgets it with the socket: so this has a thread with descriptors of its
// own, where each number is free.
type fixer struct{ jobs chan job }

type job struct {
	tid, number int
	polls       []poll
	done        chan struct{}
}

// newFixer returns one whose thread starts with its first job.
func newFixer() *fixer {
	f := &fixer{jobs: make(chan job)}
	go func() {
		first, is := <-f.jobs
		if !is {
			return
		}
		runtime.LockOSThread() // and never unlocked: the thread ends with it
		own := unix.Unshare(unix.CLONE_FILES) == nil && closeOthers() == nil
		for j := first; is; j, is = <-f.jobs {
			if own {
				j.do()
			}
			close(j.done)
		}
	}()
	return f
}

func (f *fixer) close() { close(f.jobs) }

// register returns when the connection at a number in a program is registered.
func (f *fixer) register(tid, number int, polls []poll) {
	done := make(chan struct{})
	f.jobs <- job{tid, number, polls, done}
	<-done
}

// closeOthers closes the thread's copies of what the process has open, but for what Go's scheduler may need on any
// thread.
func closeOthers() error {
	dir, err := os.Open("/proc/thread-self/fd")
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err := errors.Join(err, dir.Close()); err != nil {
		return err
	}
	for _, name := range names {
		n, err := strconv.Atoi(name)
		to, gone := os.Readlink("/proc/thread-self/fd/" + name)
		if err == nil && gone == nil && n > unix.Stderr && !strings.HasPrefix(to, "anon_inode:[event") {
			_ = unix.Close(n) // a copy
		}
	}
	return nil
}

// do registers a connection. What fails leaves the program as after a socket that it has closed.
func (j job) do() {
	process, err := openProcess(j.tid)
	if err != nil {
		return
	}
	process = j.elsewhere(process)
	defer unix.Close(process)
	get := func(number int) int {
		fd, err := unix.PidfdGetfd(process, number, 0)
		if err != nil {
			return -1
		}
		return j.elsewhere(fd)
	}
	connection := get(j.number)
	defer unix.Close(connection)
	// What Go has there is back at the end.
	before, err := unix.FcntlInt(uintptr(j.number), unix.F_DUPFD_CLOEXEC, unix.Stderr+1)
	if unix.Dup3(connection, j.number, unix.O_CLOEXEC) != nil { // the program has closed it meanwhile
		if err == nil {
			_ = unix.Close(before)
		}
		return
	}
	for _, p := range j.polls {
		epoll := get(p.epoll)
		event := unix.EpollEvent{Events: p.events, Fd: int32(uint32(p.data)), Pad: int32(p.data >> 32)}
		_ = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, j.number, &event)
		_ = unix.Close(epoll)
	}
	if err != nil {
		_ = unix.Close(j.number)
		return
	}
	_ = unix.Dup3(before, j.number, unix.O_CLOEXEC)
	_ = unix.Close(before)
}

// elsewhere moves a descriptor away from the job's number.
func (j job) elsewhere(fd int) int {
	if fd != j.number {
		return fd
	}
	moved, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, j.number+1)
	if err != nil {
		moved = -1
	}
	_ = unix.Close(fd)
	return moved
}
