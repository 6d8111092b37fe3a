package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

const (
	configName = "config.json"
	// newConfigName lies beside configName, because a rename is atomic only within
	// one file system. The name is fixed: a bundle has one shim and one Create.
	newConfigName = ".config.json.headstart"
)

// bundle is a sandbox's directory with its OCI runtime specification.
type bundle struct {
	path   string
	dir    *os.Root
	config []byte
	mode   fs.FileMode
	facts  spec.Facts
	// without is the specification without a listener for the program's connections; nil: there is none in it.
	without []byte
	// partial is why the container goes without its descriptors or its listener, and has all else.
	partial *lapse
}

// openBundle reads the bundle at path dir. The caller has to Close it.
func openBundle(dir string) (_ *bundle, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the bundle: %w", err)
	}
	b := &bundle{path: dir, dir: root}
	defer func() {
		if err != nil {
			root.Close()
		}
	}()
	if err := b.read(); err != nil {
		return nil, fmt.Errorf("reading the bundle's specification: %w", err)
	}
	if b.facts, err = spec.Read(b.config); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *bundle) Close() error { return b.dir.Close() }

func (b *bundle) read() error {
	f, err := b.dir.Open(configName)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b.mode = info.Mode().Perm()
	// One byte more than allowed shows that there is too much.
	b.config, err = io.ReadAll(io.LimitReader(f, spec.MaxConfig+1))
	return err
}

// apply puts d into the bundle of a container, all of it or, with the reason why, nothing. The caller
// has to Unpin the bundle once runc has it.
func (b *bundle) apply(at Node, id string, d *nodeapi.DescribeResponse, has served) *lapse {
	sb := spec.Sandbox{
		Directory: nodeapi.SandboxDirectory(b.facts.SandboxID(id)), Roots: at.Roots,
		Pins: filepath.Join(b.path, pinsName), Volumes: b.facts.Volumes, UID: b.facts.Pod.GetUid(),
		Endpoints: has.addresses, Output: has.output,
	}
	config, err := spec.Apply(b.config, sb, d)
	if err != nil {
		return &lapse{descriptionInvalid, err}
	}
	if bytes.Equal(config, b.config) {
		return nil
	}
	if missed := b.pin(at.Binds, sb, d.GetMounts()); missed != nil {
		return missed
	}
	if err := b.write(config); err != nil {
		return &lapse{bundleUnwritable, fmt.Errorf("writing the bundle's specification: %w", err)}
	}
	b.config = config
	return nil
}

// write replaces the specification as a whole: whoever reads it, runc or a restarted
// containerd, finds the old one or the new one.
func (b *bundle) write(config []byte) (err error) {
	f, err := b.dir.OpenFile(newConfigName, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, b.mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.dir.Remove(newConfigName))
		}
	}()
	_, err = f.Write(config)
	// The mode given to OpenFile has passed the umask.
	if err = errors.Join(err, f.Chmod(b.mode), f.Close()); err != nil {
		return err
	}
	return b.dir.Rename(newConfigName, configName)
}
