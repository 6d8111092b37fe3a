package buffer

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lookFirst and lookEvery are how often files that others have open are looked at, first and in the end: the
// room can be used again so much after they are closed. The first is for a read of the daemon's own that
// is just ending, the last for functions.
const (
	lookFirst = 10 * time.Millisecond
	lookEvery = time.Second
)

// kept is a file that somebody still has open, or mapped. closed is to be called when nobody has any more. A file
// without a name is closed first, by which its bytes leave the disk.
type kept struct {
	file   *os.File
	named  bool
	closed func()
}

func (k kept) close() {
	if !k.named {
		_ = k.file.Close() // first: the room is free then
	}
}

// isOpen tells whether a file that this process has open for writing is open anywhere else: only the one
// that has it alone gets a lease to write it (fcntl(2), F_SETLEASE), which it gives back. Of
// file systems without leases nobody knows.
func isOpen(file *os.File) bool {
	raw, err := file.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) { // one that is closed meanwhile is not open
		if _, err = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_WRLCK); err == nil {
			_, _ = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK) // which it has
		}
	})
	return errors.Is(err, unix.EAGAIN)
}

// keep watches over a file until nobody else has it open.
func (f *Files) keep(k kept) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		k.close() // nobody counts any more
		return
	}
	f.kept = append(f.kept, k)
	if len(f.kept) == 1 {
		f.freeing.Go(f.watch)
	}
}

// watch looks at the files that are kept while there are some.
func (f *Files) watch() {
	for pause := lookFirst; ; pause = min(2*pause, lookEvery) {
		select {
		case <-time.After(pause):
		case <-f.closing:
			for _, k := range f.kept { // which grows no more
				k.close()
			}
			return
		}
		free, left := f.look()
		for _, k := range free {
			k.close()
			k.closed()
		}
		if !left {
			return
		}
	}
}

// look takes out those files that nobody has open any more, and tells whether some are left.
func (f *Files) look() (free []kept, left bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var still []kept
	for _, k := range f.kept {
		if isOpen(k.file) {
			still = append(still, k)
		} else {
			free = append(free, k)
		}
	}
	f.kept = still
	return free, len(still) > 0
}
