// Command sdk-go sends S3 requests with the AWS SDK for Go v2. It reads one request a line as JSON and prints its
// answer; package sdks runs it.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"reflect"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/s3/manager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithymiddleware "github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"
)

type request struct {
	Op       string         `json:"op"`
	In       map[string]any `json:"in"`
	Body     string         `json:"body"`
	Unsigned bool           `json:"unsigned"`
}

type reply struct {
	Status int    `json:"status,omitempty"`
	Code   string `json:"code,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Text   string `json:"text,omitempty"`
	Fault  string `json:"fault,omitempty"`
	Out    any    `json:"out,omitempty"`
}

var special = map[string]func(context.Context, *s3.Client, request) (reply, error){
	"Upload": func(ctx context.Context, c *s3.Client, r request) (reply, error) {
		f, err := os.Open(r.Body)
		if err != nil {
			return reply{}, err
		}
		defer f.Close()
		return upload(ctx, c, r, f)
	},
	"UploadStream": func(ctx context.Context, c *s3.Client, r request) (reply, error) {
		cat := exec.CommandContext(ctx, "cat", r.Body)
		pipe, err := cat.StdoutPipe() // cannot seek
		if err != nil {
			return reply{}, err
		}
		if err := cat.Start(); err != nil {
			return reply{}, err
		}
		answer, err := upload(ctx, c, r, io.MultiReader(pipe))
		return answer, errors.Join(err, cat.Wait())
	},
	"Download": func(ctx context.Context, c *s3.Client, r request) (reply, error) {
		buffer := manager.NewWriteAtBuffer(nil)
		//nolint:staticcheck // most programs use the manager, not its successor
		_, err := manager.NewDownloader(c).Download(ctx, buffer, input[s3.GetObjectInput](r.In))
		return reply{SHA256: sha(buffer.Bytes())}, err
	},
	"Presign": func(ctx context.Context, c *s3.Client, r request) (reply, error) {
		out, err := invoke(ctx, s3.NewPresignClient(c), "Presign"+r.In["Op"].(string), r)
		if err != nil {
			return reply{}, err
		}
		return reply{Out: map[string]string{"URL": out.(*v4.PresignedHTTPRequest).URL}}, nil
	},
	"HTTP": func(ctx context.Context, _ *s3.Client, r request) (reply, error) {
		body, err := os.ReadFile(r.Body)
		if err != nil && r.Body != "" {
			return reply{}, err
		}
		method, url := r.In["Method"].(string), r.In["URL"].(string)
		req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
		if err != nil {
			return reply{}, err
		}
		if headers, ok := r.In["Headers"].(map[string]any); ok {
			for name, value := range headers {
				req.Header.Set(name, value.(string))
			}
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return reply{}, err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		out := map[string]string{}
		for name := range resp.Header {
			out[strings.ToLower(name)] = resp.Header.Get(name)
		}
		if resp.StatusCode >= http.StatusBadRequest {
			return reply{Status: resp.StatusCode, Out: out, Text: string(data)}, err
		}
		return reply{Status: resp.StatusCode, Out: out, SHA256: sha(data)}, err
	},
	"GetMany": func(ctx context.Context, c *s3.Client, r request) (reply, error) {
		digests := make([]string, int(r.In["Count"].(float64)))
		group, ctx := errgroup.WithContext(ctx)
		for i := range digests {
			group.Go(func() error {
				o, err := c.GetObject(ctx, input[s3.GetObjectInput](r.In))
				if err != nil {
					return err
				}
				defer o.Body.Close()
				data, err := io.ReadAll(o.Body)
				digests[i] = sha(data)
				return err
			})
		}
		err := group.Wait()
		counts := map[string]int{}
		for _, d := range digests {
			counts[d]++
		}
		return reply{Out: map[string]any{"Counts": counts}}, err
	},
	"GetSome": func(ctx context.Context, c *s3.Client, r request) (reply, error) {
		o, err := c.GetObject(ctx, input[s3.GetObjectInput](r.In))
		if err != nil {
			return reply{}, err
		}
		data := make([]byte, int(r.In["Count"].(float64)))
		_, err = io.ReadFull(o.Body, data)
		_ = o.Body.Close() // the rest is not read, of which Close may complain
		return reply{SHA256: sha(data)}, err
	},
}

func sha(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

func upload(ctx context.Context, c *s3.Client, r request, body io.Reader) (reply, error) {
	in := input[s3.PutObjectInput](r.In)
	in.Body = body
	//nolint:staticcheck // most programs use the manager, not its successor
	_, err := manager.NewUploader(c).Upload(ctx, in)
	return reply{}, err
}

func input[T any](params map[string]any) *T {
	in := new(T)
	fill(in, params)
	return in
}

// fill sets the fields that params name, as the other SDKs' parameters do.
func fill(in any, params map[string]any) {
	b, err := json.Marshal(params)
	if err == nil {
		err = json.Unmarshal(b, in)
	}
	if err != nil {
		panic(err) // the suite has parameters that S3 does not
	}
}

// invoke calls the method of that name with r's parameters.
func invoke(ctx context.Context, on any, method string, r request) (any, error) {
	m := reflect.ValueOf(on).MethodByName(method)
	in := reflect.New(m.Type().In(1).Elem())
	fill(in.Interface(), r.In)
	if r.Body != "" {
		f, err := os.Open(r.Body)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in.Elem().FieldByName("Body").Set(reflect.ValueOf(f))
	}
	out := m.Call([]reflect.Value{reflect.ValueOf(ctx), in})
	err, _ := out[1].Interface().(error)
	return out[0].Interface(), err
}

func call(ctx context.Context, c *s3.Client, r request) (reply, error) {
	if r.Unsigned {
		c = s3.New(c.Options(), func(o *s3.Options) {
			o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
			o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
		})
	}
	out, err := invoke(ctx, c, r.Op, r)
	if err != nil {
		return reply{}, err
	}
	fields := reflect.ValueOf(out).Elem()
	metadata := fields.FieldByName("ResultMetadata").Interface().(smithymiddleware.Metadata)
	answer := reply{Status: middleware.GetRawResponse(metadata).(*smithyhttp.Response).StatusCode, Out: out}
	if body := fields.FieldByName("Body"); body.IsValid() {
		stream := body.Interface().(io.ReadCloser)
		defer stream.Close()
		data, err := io.ReadAll(stream)
		if err != nil {
			return reply{}, err
		}
		answer.SHA256 = sha(data)
		body.SetZero()
	}
	return answer, nil
}

func answer(ctx context.Context, c *s3.Client, r request) reply {
	do := special[r.Op]
	if do == nil {
		do = call
	}
	a, err := do(ctx, c, r)
	var refused smithy.APIError
	var response *smithyhttp.ResponseError
	switch {
	case errors.As(err, &refused) && errors.As(err, &response):
		return reply{Status: response.HTTPStatusCode(), Code: refused.ErrorCode()}
	case err != nil:
		return reply{Fault: err.Error()}
	}
	return a
}

func main() {
	ctx := context.Background() // package sdks has the deadlines, and ends the process
	c, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	client := s3.NewFromConfig(c)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			return // no more requests
		}
		if _, ok := r.In["Bucket"]; !ok {
			r.In["Bucket"] = os.Getenv("BUCKET")
		}
		if err := out.Encode(answer(ctx, client, r)); err != nil {
			log.Fatal(err)
		}
	}
}
