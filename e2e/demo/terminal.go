package main

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// plainWidth is for output that is no terminal.
const plainWidth = 110

func terminalWidth() int {
	if size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil {
		return int(size.Col)
	}
	return plainWidth
}

func colored() bool {
	_, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	return err == nil && os.Getenv("NO_COLOR") == ""
}

// relative shortens a path below the working directory.
func relative(path string) string {
	if wd, err := os.Getwd(); err == nil {
		if r, err := filepath.Rel(wd, path); err == nil {
			return r
		}
	}
	return path
}
