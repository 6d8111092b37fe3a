// Package postgres is Debian's PostgreSQL as an image: a server, and its client psql.
package postgres

import (
	"bytes"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

// Ref is the image's.
const Ref = "headstart.local/postgres:1"

// User is the user that the server runs as: root is refused.
const User = 999

// Serve is a script for the image's shell that serves one database with a user of the same name, both in PGUSER, whose
// password is in PGPASSWORD. Clients come from anywhere.
const Serve = `set -e
echo "$PGPASSWORD" > /tmp/password
initdb -D /tmp/data -U "$PGUSER" --pwfile=/tmp/password --auth=scram-sha-256 --locale=C --encoding=UTF8 --no-sync
echo "host all all all scram-sha-256" >> /tmp/data/pg_hba.conf
postgres --single -j -D /tmp/data template1 <<EOF
CREATE DATABASE $PGUSER;

EOF
exec postgres -D /tmp/data -c listen_addresses='*' -c unix_socket_directories=/tmp
`

const home = "/usr/lib/postgresql/15"

// programs are what the image has, and shells out to.
var programs = []string{home + "/bin/initdb", home + "/bin/postgres", home + "/bin/psql", "/bin/sh", "/bin/sleep", "/bin/ls"}

// Image returns the image. `make setup` has brought what it is made of.
func Image() ([]byte, error) {
	files := map[string]ociimage.File{"/etc/passwd": {Mode: 0o644,
		Content: fmt.Appendf(nil, "root:x:0:0::/:/bin/sh\npostgres:x:%d:%d::/tmp:/bin/sh\n", User, User)}}
	for _, root := range []string{home + "/lib", "/usr/share/postgresql/15"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && filepath.Ext(path) != ".bc" { // bitcode, for a compiler that is not here
				files[path] = ociimage.File{Source: path, Mode: 0o644}
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("looking for PostgreSQL; `make setup` brings it: %w", err)
		}
	}
	for _, p := range programs {
		real, err := filepath.EvalSymlinks(p)
		if err != nil {
			return nil, fmt.Errorf("looking for PostgreSQL; `make setup` brings it: %w", err)
		}
		files[p] = ociimage.File{Source: real, Mode: 0o755}
	}
	if err := ociimage.AddLibraries(files, programs...); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := ociimage.Build(&b, ociimage.Image{Ref: Ref, Entrypoint: []string{"/bin/sh"}, Files: files,
		Env: []string{"PATH=" + home + "/bin:/bin", "HOME=/tmp"}})
	return b.Bytes(), err
}
