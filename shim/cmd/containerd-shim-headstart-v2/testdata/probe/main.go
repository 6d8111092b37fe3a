// Command probe runs in a sandbox and says what it sees there: its environment, the
// files of /headstart/input, and what happens when it writes there. Then it waits to be
// killed, repeating the list of files whenever a line comes in. By the name of pause it
// does nothing, until it is killed.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

const dir = "/headstart/input"

func main() {
	if filepath.Base(os.Args[0]) == "pause" {
		time.Sleep(time.Hour)
	}
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
		view["write"] = text(os.WriteFile(dir+"/new", nil, 0o600))
		if err := json.NewEncoder(os.Stdout).Encode(view); err != nil || !requests.Scan() {
			return
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
