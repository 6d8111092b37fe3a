package ociimage

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// AddLibraries adds the libraries to files that programs of this machine are linked with.
func AddLibraries(files map[string]File, programs ...string) error {
	out, err := exec.Command("ldd", programs...).Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return fmt.Errorf("looking for the libraries of %s: %w", strings.Join(programs, ", "), err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		// What a module finds from its own place (..) is in the tree of that.
		if filepath.IsAbs(word) && filepath.Clean(word) == word && !strings.HasSuffix(word, ":") {
			files[word] = File{Source: word, Mode: 0o755}
		}
	}
	return nil
}
