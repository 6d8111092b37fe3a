package sdks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// cli runs the AWS CLI, a process for each request.
type cli struct {
	env     Env
	dir     string
	environ []string
}

var (
	wordsOf    = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	timeInText = regexp.MustCompile(`(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d`)
	codeInText = regexp.MustCompile(`An error occurred \((\w+)\)`)
)

// kebab is how the CLI spells an operation or a parameter.
func kebab(op string) string { return strings.ToLower(wordsOf.ReplaceAllString(op, "$1-$2")) }

func (c *cli) end() {}

func (c *cli) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := c.env.Command(ctx, filepath.Join(c.env.BinDir, "sdks/python/bin/aws"), args...)
	cmd.Env, cmd.WaitDelay, cmd.Dir = append(cmd.Env, c.environ...), waitDelay, c.dir
	return cmd
}

// run returns what the CLI prints. S3's error is an answer, too.
func (c *cli) run(cmd *exec.Cmd) (reply, string, error) {
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	if code := codeInText.FindStringSubmatch(log.String()); err != nil && code != nil {
		return reply{Code: code[1]}, "", nil
	}
	if err != nil {
		return reply{}, "", fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[1:], " "), err, &log)
	}
	return reply{}, out.String(), nil
}

func (c *cli) call(ctx context.Context, r request) (reply, error) {
	bucket := c.env.Bucket
	if b, given := r.In["Bucket"].(string); given {
		bucket = b
	}
	key, _ := r.In["Key"].(string)
	object := "s3://" + bucket + "/" + key
	switch r.Op {
	case "Upload":
		answer, _, err := c.run(c.command(ctx, "s3", "cp", r.Body, object))
		return answer, err
	case "UploadStream":
		body, err := os.Open(r.Body)
		if err != nil {
			return reply{}, err
		}
		defer body.Close()
		cmd := c.command(ctx, "s3", "cp", "-", object)
		cmd.Stdin = body
		answer, _, err := c.run(cmd)
		return answer, err
	case "Download":
		return c.withDigest(c.command(ctx, "s3", "cp", object))
	case "GetSome":
		return c.some(c.command(ctx, "s3", "cp", object, "-"), r.In["Count"].(int))
	case "Presign":
		cmd := c.command(ctx, "s3", "presign", object)
		if err := c.configure(cmd, "signature_version = s3v4"); err != nil { // else it signs URLs as S3 once did
			return reply{}, err
		}
		answer, out, err := c.run(cmd)
		answer.Out = M{"URL": strings.TrimSpace(out)}
		return answer, err
	case "HTTP": // by Python's client
		plain := newDriver(c.env, c.environ, "python3", filepath.Join(c.dir, "sdk.py"))
		defer plain.end()
		return plain.call(ctx, r)
	case "Run":
		answer, out, err := c.run(c.command(ctx, r.In["Args"].([]string)...))
		lines := slices.Sorted(strings.Lines(timeInText.ReplaceAllString(strings.ReplaceAll(out, c.dir, ""), "")))
		answer.Out = M{"Count": float64(len(lines)), "Lines": strings.Join(lines, "")}
		return answer, err
	}
	return c.api(ctx, r, bucket)
}

func (c *cli) api(ctx context.Context, r request, bucket string) (reply, error) {
	args := []string{"s3api", kebab(r.Op), "--bucket", bucket, "--no-paginate"}
	for name, value := range r.In {
		switch value.(type) {
		case string, int:
		default:
			b, err := json.Marshal(value)
			if err != nil {
				return reply{}, err
			}
			value = string(b)
		}
		if name != "Bucket" {
			args = append(args, "--"+kebab(name), fmt.Sprint(value))
		}
	}
	if r.Body != "" {
		args = append(args, "--body", r.Body)
	}
	cmd := c.command(ctx, args...)
	if r.Unsigned {
		if err := c.configure(cmd, "payload_signing_enabled = false"); err != nil {
			return reply{}, err
		}
	}
	if r.Op == "GetObject" {
		return c.withDigest(cmd)
	}
	answer, out, err := c.run(cmd)
	if err == nil && out != "" {
		err = json.Unmarshal([]byte(out), &answer.Out)
	}
	return answer, err
}

// configure sets an option that has no environment variable.
func (c *cli) configure(cmd *exec.Cmd, option string) error {
	file := filepath.Join(c.dir, url.PathEscape(option))
	cmd.Env = append(cmd.Env, "AWS_CONFIG_FILE="+file, "AWS_REQUEST_CHECKSUM_CALCULATION=when_required")
	return os.WriteFile(file, []byte("[default]\ns3 =\n  "+option+"\n"), 0o600)
}

// withDigest runs a command whose last argument is the file that it writes.
func (c *cli) withDigest(cmd *exec.Cmd) (reply, error) {
	file, err := os.CreateTemp(c.dir, "got")
	if err != nil {
		return reply{}, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	cmd.Args = append(cmd.Args, file.Name())
	answer, out, err := c.run(cmd)
	if err != nil || answer.Code != "" {
		return answer, err
	}
	data, err := os.ReadFile(file.Name())
	answer.SHA256 = digest(data)
	_ = json.Unmarshal([]byte(out), &answer.Out) // `aws s3` prints lines
	return answer, err
}

// some reads the first bytes of what a command prints, and ends it then.
func (c *cli) some(cmd *exec.Cmd, count int) (reply, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return reply{}, err
	}
	if err := cmd.Start(); err != nil {
		return reply{}, err
	}
	data := make([]byte, count)
	_, err = io.ReadFull(out, data)
	_ = out.Close()
	if failure := cmd.Wait(); err == nil && failure == nil {
		err = errors.New("the CLI does not notice that nobody reads on")
	}
	return reply{SHA256: digest(data)}, err
}
