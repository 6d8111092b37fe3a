package buffer_test

import (
	"io"
	"os"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
)

// BenchmarkWriteRead is an input's way through the buffer: 64 KiB at a time in, and out to
// a reader that throws it away.
func BenchmarkWriteRead(b *testing.B) {
	disk, err := os.UserCacheDir() // what /tmp is differs
	if err != nil {
		b.Fatal(err)
	}
	for name, parent := range map[string]string{"memory": "/dev/shm", "disk": disk} {
		for size, bytes := range map[string]int64{"1MB": 1e6, "32MB": 32e6, "128MB": 128e6} {
			b.Run(name+"/"+size, func(b *testing.B) { writeRead(b, parent, bytes) })
		}
	}
}

func writeRead(b *testing.B, parent string, size int64) {
	dir, err := os.MkdirTemp(parent, "headstart-buffer")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	buf, err := buffer.Open(dir, size)
	if err != nil {
		b.Fatal(err)
	}
	defer buf.Close()
	p := make([]byte, 64<<10)
	b.SetBytes(size)
	for b.Loop() {
		e, err := buf.Create(id1, function, size)
		if err != nil {
			b.Fatal(err)
		}
		for at := int64(0); at < size; at += int64(len(p)) {
			if _, err := e.WriteAt(p[:min(int64(len(p)), size-at)], at); err != nil {
				b.Fatal(err)
			}
		}
		if err := e.Complete(); err != nil {
			b.Fatal(err)
		}
		r := e.NewReader(b.Context())
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r, p); n != size || err != nil {
			b.Fatal(n, err)
		}
		if err := r.Close(); err != nil {
			b.Error(err)
		}
		e.Release()
	}
}
