// Command probe runs in a sandbox and says what it sees there: its environment, the
// files of /headstart/input, and what happens when it writes there. Then it waits to be
// killed, repeating the list of files whenever a line comes in. By the name of pause it
// does nothing, until it is killed.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const dir = "/headstart/input"

func main() {
	if filepath.Base(os.Args[0]) == "pause" {
		time.Sleep(time.Hour)
	}
	inherited := inherit()
	requests := bufio.NewScanner(os.Stdin)
	for {
		files := map[string]string{}
		entries, err := os.ReadDir(dir)
		view := map[string]any{"env": os.Environ(), "files": files, "dir": text(err)}
		for _, e := range entries {
			content, err := os.ReadFile(dir + "/" + e.Name())
			if err != nil {
				content = []byte(err.Error())
			}
			files[e.Name()] = string(content)
		}
		view["inherited"], view["mounts"] = inherited, mounts()
		view["write"] = text(os.WriteFile(dir+"/new", nil, 0o600))
		if err := json.NewEncoder(os.Stdout).Encode(view); err != nil || !requests.Scan() {
			return
		}
	}
}

// mounts returns the options of the mounts below /headstart, by their places, with the names of what is there.
func mounts() map[string]string {
	all := map[string]string{}
	info, _ := os.ReadFile("/proc/self/mountinfo")
	for _, line := range strings.Split(string(info), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasPrefix(fields[4], "/headstart/") && fields[4] != "/etc" {
			continue
		}
		all[fields[4]] = fields[5]
		entries, _ := os.ReadDir(fields[4])
		for _, e := range entries {
			all[fields[4]] += " " + e.Name()
		}
	}
	return all
}

// inherit returns the content of the descriptors that the program has inherited, by name, and as
// "others" those that nobody has named: files and sockets, as a runtime opens neither.
func inherit() map[string]string {
	const first = 3
	names := strings.Split(os.Getenv("HEADSTART_DESCRIPTORS"), ":")
	all := map[string]string{}
	named := map[string]bool{}
	for i, name := range names {
		if name == "" {
			continue
		}
		f := os.NewFile(uintptr(first+i), name)
		named[strconv.Itoa(first+i)] = true
		content, err := io.ReadAll(f)
		if err != nil {
			content = []byte(err.Error())
		}
		all[name] = string(content)
	}
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		to, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if n, _ := strconv.Atoi(e.Name()); n < first || named[e.Name()] || strings.HasPrefix(to, "anon_inode:") || strings.HasPrefix(to, "/proc/") || to == "" {
			continue
		}
		all["others"] += to + " "
	}
	return all
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
