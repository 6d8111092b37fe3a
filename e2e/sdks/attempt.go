package sdks

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// M has an operation's parameters, or its answer's fields, by S3's names.
type M = map[string]any

func newPrefix() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "sdks-" + hex.EncodeToString(b[:]) + "-"
}

// attempt is one client's attempt at one case.
type attempt struct {
	ctx    context.Context
	client Client
	env    Env
	dir    string
	prefix string
	caller caller
	result Result
}

func (a *attempt) key(name string) string { return a.prefix + name }

// copySource names an object for CopyObject. boto3 and the CLI escape it themselves.
func (a *attempt) copySource(key string) string {
	if a.client == JS || a.client == Go {
		key = strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(key))
	}
	return a.env.Bucket + "/" + key
}

// file is where the content of that name is.
func (a *attempt) file(name string) string { return filepath.Join(a.dir, name) }

// do has the client send one request, records its answer and returns it. in has the parameters by the SDKs' names,
// except that Body names a content. want is what is known of the answer: an error such as "404 NoSuchKey", or fields.
func (a *attempt) do(op string, in M, want any) M {
	r := request{Op: op, In: M{}}
	for name, value := range in {
		switch name {
		case "Body":
			r.Body = a.file(value.(string))
		case "Unsigned":
			r.Unsigned = true
		default:
			r.In[name] = value
		}
	}
	if a.result.Error != "" {
		return M{}
	}
	answer, err := a.caller.call(a.ctx, r)
	if err != nil {
		a.result.Error = fmt.Sprintf("%s: %v", op, err)
		return M{}
	}
	a.record(op, answer.fields(), want)
	return answer.fields()
}

// record adds what the client got to the results.
func (a *attempt) record(op string, got M, want any) {
	cleaned := a.clean(got).(M)
	if _, said := got["ChecksumCRC64NVME"]; a.env.Behind && strings.HasSuffix(op, "Object") {
		if wanted, _ := want.(M); said && wanted["ChecksumCRC64NVME"] == nil {
			delete(cleaned, "ChecksumCRC64NVME")
			delete(cleaned, "ChecksumType")
		}
		delete(cleaned, "StorageClass")
		delete(cleaned, "Size")
	}
	a.result.Got = append(a.result.Got, M{op: cleaned})
	if text := mismatch(want, cleaned); text != "" {
		a.result.Wrong = append(a.result.Wrong, fmt.Sprintf("%s, request %d: %s", op, len(a.result.Got), text))
	}
}

// volatile are the fields that differ each time, or by who asks whom.
var volatile = regexp.MustCompile(`^(UploadId|Location|Owner|Initiator|ResultMetadata|URL)$`)

// present are those of which only that they are there is compared.
var present = regexp.MustCompile(`^(LastModified|Initiated|last-modified|(Next)?ContinuationToken)$`)

// clean leaves out what is empty or volatile, and the prefix.
func (a *attempt) clean(v any) any {
	switch v := v.(type) {
	case string:
		if a.env.Behind {
			v = behind.Replace(v)
		}
		return strings.ReplaceAll(v, a.prefix, "")
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = a.clean(v[i])
		}
		return list
	case M:
		fields := M{}
		for name, value := range v {
			switch {
			case value == nil || value == "" || volatile.MatchString(name):
			case present.MatchString(name):
				fields[name] = "present"
			default:
				fields[name] = a.clean(value)
			}
		}
		return fields
	}
	return v
}

// mismatch says how an answer is not as wanted.
func mismatch(want any, got M) string {
	if want == nil {
		return ""
	}
	refused, _ := got["error"].(string)
	if code, isCode := want.(string); isCode {
		// The CLI does not say the status. Answers without a body have no code, and each client makes one up.
		_, name, _ := strings.Cut(code, " ")
		if refused == "" || refused != code && refused != name && (name != "" || !strings.HasPrefix(refused, code)) {
			return fmt.Sprintf("want error %s, got %v", code, got)
		}
		return ""
	}
	if refused != "" {
		return "error " + refused
	}
	b, err := json.Marshal(want)
	var fields any
	if err == nil {
		err = json.Unmarshal(b, &fields) // has the types that answers have
	}
	if err != nil {
		panic(err) // wants are constants
	}
	return lacks(fields, got, "answer")
}

// lacks says which wanted field is not in got. A list must have all its entries and no others.
func lacks(want, got any, path string) string {
	switch want := want.(type) {
	case M:
		fields := M{}
		if g, isMap := got.(M); isMap {
			for name, value := range g { // stores may change the case of metadata's names
				fields[strings.ToLower(name)] = value
			}
		}
		for name, value := range want {
			if text := lacks(value, fields[strings.ToLower(name)], path+"."+name); text != "" {
				return text
			}
		}
		return ""
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return fmt.Sprintf("%s: want %d entries, got %v", path, len(want), got)
		}
		for i := range want {
			if text := lacks(want[i], list[i], fmt.Sprintf("%s[%d]", path, i)); text != "" {
				return text
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf("%s: want %v, got %v", path, want, got)
	}
	return ""
}

// direct stores an object without the endpoint.
func (a *attempt) direct(key, name string) {
	if a.env.Direct == nil {
		a.do("PutObject", M{"Key": key, "Body": name}, ok)
		return
	}
	if err := a.env.Direct(a.ctx, key, bytes.NewReader(content(name))); err != nil && a.result.Error == "" {
		a.result.Error = fmt.Sprintf("storing an object behind the endpoint's back: %v", err)
	}
}
