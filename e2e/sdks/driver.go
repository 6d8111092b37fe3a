package sdks

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// request is what a driver is told, in a line of JSON.
type request struct {
	Op       string `json:"op"`
	In       M      `json:"in"`
	Body     string `json:"body,omitempty"`
	Unsigned bool   `json:"unsigned,omitempty"`
}

// reply is what a driver prints, in a line of JSON.
type reply struct {
	Status int    `json:"status"`
	Code   string `json:"code"` // of S3's error
	SHA256 string `json:"sha256"`
	Out    M      `json:"out"`
	Text   string `json:"text"`  // of an error that a plain HTTP client got
	Fault  string `json:"fault"` // says why there is no answer of S3
}

var (
	codeInXML = regexp.MustCompile(`<Code>(\w+)</Code>`)
	// plainHeader are an HTTP answer's headers that count.
	plainHeader = regexp.MustCompile(
		`^(content-.*|etag|accept-ranges|cache-control|last-modified|x-amz-(meta|checksum)-.*)$`)
)

func (r reply) fields() M {
	if code := codeInXML.FindStringSubmatch(r.Text); code != nil {
		r.Code = code[1]
	}
	status := ""
	if r.Status != 0 { // the CLI has none
		status = strconv.Itoa(r.Status)
	}
	if r.Code != "" || r.Status >= 300 {
		return M{"error": strings.TrimSpace(status + " " + r.Code)}
	}
	fields := M{"sha256": r.SHA256, "status": status}
	for name, value := range r.Out {
		if name != strings.ToLower(name) || plainHeader.MatchString(name) {
			fields[name] = value
		}
	}
	return fields
}

// caller sends requests with one client.
type caller interface {
	call(context.Context, request) (reply, error)
	end()
}

func newCaller(client Client, env Env, dir string) caller {
	environ := environment(env, dir)
	switch client {
	case Boto3:
		return newDriver(env, environ, "python3", filepath.Join(dir, "sdk.py"))
	case JS:
		return newDriver(env, environ, "node", filepath.Join(dir, "sdk.mjs"))
	case Go:
		return newDriver(env, environ, filepath.Join(env.BinDir, "sdk-go"))
	case CLI:
		return &cli{env: env, dir: dir, environ: environ}
	}
	panic("no client " + string(client)) // they are this package's constants
}

//go:embed sdk.py sdk.mjs
var drivers embed.FS

// prepare writes contents and drivers into dir. Node finds its packages beside the driver.
func prepare(dir, binDir string) error {
	for name := range sizes {
		if err := os.WriteFile(filepath.Join(dir, name), content(name), 0o600); err != nil {
			return err
		}
	}
	return errors.Join(os.CopyFS(dir, drivers),
		os.Symlink(filepath.Join(binDir, "sdks/node/node_modules"), filepath.Join(dir, "node_modules")))
}

// environment is all that a client's process is told of the endpoint.
func environment(env Env, dir string) []string {
	python := filepath.Join(env.BinDir, "sdks/python")
	e := []string{"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + python, "HOME=" + dir, "LANG=C.UTF-8",
		"AWS_ENDPOINT_URL_S3=" + env.Endpoint, "AWS_REGION=" + env.Region, "AWS_DEFAULT_REGION=" + env.Region,
		"BUCKET=" + env.Bucket, "AWS_MAX_ATTEMPTS=1"} // a second attempt would hide the first one's failure
	if env.Access != "" {
		e = append(e, "AWS_ACCESS_KEY_ID="+env.Access, "AWS_SECRET_ACCESS_KEY="+env.Secret)
	} else {
		e = append(e, "AWS_CONTAINER_CREDENTIALS_FULL_URI="+env.CredentialsURI,
			"AWS_CONTAINER_AUTHORIZATION_TOKEN="+env.Token)
	}
	return append(e, env.Variables...)
}

// driver is a process that answers one request after the other. It starts with the first one, and again after its end.
type driver struct {
	start func() *exec.Cmd

	cmd     *exec.Cmd
	in      io.WriteCloser
	answers *json.Decoder
	log     *bytes.Buffer
}

func newDriver(env Env, environ []string, program string, args ...string) *driver {
	return &driver{start: func() *exec.Cmd {
		cmd := env.Command(context.Background(), program, args...) // call has the deadlines
		cmd.Env = append(cmd.Env, environ...)
		return cmd
	}}
}

func (d *driver) call(ctx context.Context, r request) (answer reply, err error) {
	if d.cmd == nil {
		d.cmd, d.log = d.start(), &bytes.Buffer{}
		d.cmd.Stderr, d.cmd.WaitDelay = d.log, waitDelay
		out, err := d.cmd.StdoutPipe()
		if err != nil {
			return reply{}, err
		}
		if d.in, err = d.cmd.StdinPipe(); err != nil {
			return reply{}, err
		}
		if err := d.cmd.Start(); err != nil {
			return reply{}, err
		}
		d.answers = json.NewDecoder(out)
	}
	process := d.cmd.Process
	stop := context.AfterFunc(ctx, func() { _ = process.Kill() }) // it may have ended
	defer stop()
	err = json.NewEncoder(d.in).Encode(r)
	if err == nil {
		err = d.answers.Decode(&answer)
	}
	if err != nil {
		d.end()
		return reply{}, errors.Join(ctx.Err(), fmt.Errorf("the driver gave no answer: %w: %s", err, d.log))
	}
	if answer.Fault != "" {
		return reply{}, errors.New(answer.Fault)
	}
	return answer, nil
}

func (d *driver) end() {
	if d.cmd == nil {
		return
	}
	_ = d.in.Close()
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait() // it was killed
	d.cmd = nil
}
