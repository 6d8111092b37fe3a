package buffer_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// A function that keeps its inputs open after their requests are over has no more of the disk, or of the
// memory, than it may have of the buffer. It still has their bytes, and others have the rest of the buffer.
// What it closes it may have again.
func TestAttackKeptDescriptorsHoldNoMoreThanTheQuota(t *testing.T) {
	const size, requests, quota = 1 << 20, 16, 4
	for name, parent := range map[string]string{"disk": t.TempDir(), "memory": "/dev/shm"} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp(parent, "headstart-kept")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			files, err := buffer.OpenFiles(dir + "/b")
			if err != nil {
				t.Fatal(err)
			}
			b := buffer.New(buffer.Quota{Bytes: quota * size, Fair: true}, buffer.Tier{Name: name, Limit: requests * size, Medium: files})
			t.Cleanup(func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
			sandbox := openRoot(t, dir+"/sandbox")
			var has []*process
			serve := func(function string, n int) error {
				e, err := b.Create(id(n), function, size)
				if err != nil {
					return err
				}
				defer e.Release()
				write(t, e, strings.Repeat("x", size), 0)
				request := fmt.Sprint("request", n)
				if err := errors.Join(e.Complete(), e.Link(t.Context(), sandbox, request)); err != nil {
					t.Fatal(err)
				}
				has = append(has, keep(t, filepath.Join(dir, "sandbox", request)))
				return sandbox.Remove(request)
			}
			for n := range requests {
				if err := serve("flood/f", n); err != nil && problem.Of(err).Title != "BufferQuota" {
					t.Fatal(err)
				}
			}
			var blocks int64
			for _, p := range has {
				blocks += p.blocks(t)
			}
			if most := int64(quota * size / 512); blocks > most || len(has) != quota {
				t.Errorf("%d inputs that are kept have %d blocks, and may have %d", len(has), blocks, most)
			}
			if err := serve("small/one", requests); err != nil {
				t.Errorf("another namespace gets %v", err)
			}
			if got := has[0].end(t); got != size {
				t.Errorf("of what it keeps the function reads %d bytes", got)
			}
			for deadline := time.Now().Add(time.Minute); serve("flood/f", requests+1) != nil; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("what was closed still counts")
				}
			}
		})
	}
}

// process is a function's, that has a file open.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// keep starts a process that opens a file. It reads it when it is to end.
func keep(t *testing.T, path string) *process {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), "sh", "-c", `exec 3<"$0"; echo; read _; wc -c <&3`, path)}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.in.Close(); _ = p.cmd.Wait() })
	if _, err := p.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return p
}

// blocks is how many blocks of 512 bytes the file has.
func (p *process) blocks(t *testing.T) int64 {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/3", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks
}

// end ends the process, and returns how many bytes it has read of the file.
func (p *process) end(t *testing.T) (n int) {
	t.Helper()
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(p.out, &n); err != nil {
		t.Fatal(err)
	}
	return n
}
