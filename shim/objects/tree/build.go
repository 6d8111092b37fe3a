package tree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

const (
	// placers is how many objects are placed at a time: as many as hide the round trips of small ones. How many
	// connections they have, the sources say.
	placers = 32
	// tries is how often a prefix is listed that changes meanwhile.
	tries = 3
)

// Version returns the path of a prefix's present version, once that is whole, and gives it to a pod as the volume of a
// name. Without a pod, the version stays until room is needed. made says that it was not there already.
func (s *Set) Version(ctx context.Context, of Prefix, pod, volume string) (path string, made bool, err error) {
	for try := 1; ; try++ {
		at, made, err := s.version(ctx, of, pod, volume)
		if err == nil {
			return s.path(at), made, nil
		}
		// One that has just been removed is made again.
		if again := errors.Is(err, ErrChanged) || errors.Is(err, fs.ErrNotExist); !again || try == tries {
			return "", false, err
		}
	}
}

func (s *Set) version(ctx context.Context, of Prefix, pod, volume string) (at string, made bool, err error) {
	var objects []Object
	names := 0
	if err := s.objects.List(ctx, of, func(o Object) error {
		if names += len(o.Name); len(objects) == maxObjects || names > maxNames {
			return tooLarge(of)
		}
		objects = append(objects, o)
		return nil
	}); err != nil {
		return "", false, err
	}
	p, err := planOf(of, objects)
	if err != nil {
		return "", false, err
	}
	at = s.at(of.Namespace, p.id)
	take := func() error {
		s.mu.Lock() // none is marked as damaged in between
		defer s.mu.Unlock()
		if s.isDamaged(at) { // since a moment ago
			return ErrChanged
		}
		if pod != "" {
			return s.pin(at, pod, volume)
		}
		_, err := s.root.Stat(at)
		return err
	}
	if err := take(); !errors.Is(err, fs.ErrNotExist) {
		return at, false, err
	}
	if err := s.made(ctx, at, of, p); err != nil {
		return "", false, err
	}
	return at, true, take()
}

// flight is a version that is being made.
type flight struct {
	users  int
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

// made returns when a version is there. The version is made once for all who wait, and given up when nobody waits.
func (s *Set) made(ctx context.Context, at string, of Prefix, p plan) error {
	s.mu.Lock()
	f := s.flights[at]
	if _, err := s.root.Stat(at); f == nil && err == nil { // it got its name just now
		s.mu.Unlock()
		return nil
	}
	if f == nil {
		f = &flight{done: make(chan struct{})}
		var work context.Context
		work, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		s.flights[at] = f
		s.wg.Go(func() {
			f.err = s.make(work, at, of, p)
			s.mu.Lock()
			s.forget(at, f)
			s.mu.Unlock()
			f.cancel()
			close(f.done)
		})
	}
	f.users++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		if f.users--; f.users == 0 {
			f.cancel()
			s.forget(at, f) // the next one begins again
		}
		s.mu.Unlock()
	}()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// forget takes a flight off the list; mu is held.
func (s *Set) forget(at string, f *flight) {
	if s.flights[at] == f {
		delete(s.flights, at)
	}
}

// make makes a version where nobody sees it, and gives it its name when it is whole.
func (s *Set) make(ctx context.Context, at string, of Prefix, p plan) (err error) {
	work := s.hide(at)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.root.RemoveAll(work))
		}
	}()
	// The directories above are 0700; these are seen by the function's own user.
	err = errors.Join(s.root.MkdirAll(filepath.Join(work, filesName), 0o755),
		s.root.Mkdir(filepath.Join(work, pinsName), 0o700))
	if err != nil {
		return fmt.Errorf("making a volume: %w", err)
	}
	if err := s.note(work, of, p); err != nil {
		return err
	}
	files, err := s.root.OpenRoot(filepath.Join(work, filesName))
	if err != nil {
		return fmt.Errorf("making a volume: %w", err)
	}
	defer files.Close() // nothing is written by it
	if err := s.fill(ctx, files, of, p); err != nil {
		return err
	}
	s.mu.Lock()
	if err = ErrChanged; !s.isDamaged(work) {
		err = s.root.Rename(work, at)
	}
	s.mu.Unlock()
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, fs.ErrExist) { // the node's other daemon was faster
		return s.root.RemoveAll(work)
	}
	if err != nil {
		return fmt.Errorf("naming a volume: %w", err)
	}
	return nil
}

// fill makes all that a version has.
func (s *Set) fill(ctx context.Context, files *os.Root, of Prefix, p plan) error {
	for _, directory := range p.directories {
		if err := files.Mkdir(directory, 0o755); err != nil {
			return fmt.Errorf("making a directory of a volume: %w", err)
		}
	}
	g, placing := errgroup.WithContext(ctx)
	g.SetLimit(placers)
	for _, o := range p.files {
		if placing.Err() != nil {
			break
		}
		g.Go(func() error {
			if o.Size == 0 {
				return empty(files, o.Name)
			}
			return s.objects.Place(placing, of, o, files, o.Name)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// empty makes a file with nothing in it. Each has an inode of its own: one inode has no more than 65,000 links.
func empty(files *os.Root, name string) error {
	f, err := files.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return fmt.Errorf("making an empty file of a volume: %w", err)
	}
	return f.Close()
}
