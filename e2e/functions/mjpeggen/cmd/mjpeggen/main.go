// Command mjpeggen writes a generated Motion JPEG video to standard output.
//
//	mjpeggen -bytes 134217728 -seed 1 > 128mb.mjpeg
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"

	"github.com/headstart-mesh/headstart/e2e/functions/mjpeggen"
)

func main() {
	size := flag.Int64("bytes", 1<<20, "the video's length at most, but at least one frame")
	seed := flag.Uint64("seed", 1, "the same seed gives the same video")
	flag.Parse()
	if err := run(*size, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "mjpeggen:", err)
		os.Exit(1)
	}
}

func run(size int64, seed uint64) error {
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	if _, err := mjpeggen.Generate(out, size, seed); err != nil {
		return err
	}
	return out.Flush()
}
