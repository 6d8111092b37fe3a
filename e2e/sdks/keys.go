package sdks

import (
	"fmt"
	"strings"
)

// oddKeys are a case for each key that is easily changed on its way.
func oddKeys() (cases []Case) {
	for i, k := range []struct {
		name, before, after string
		// unlike S3: versitygw keeps objects in files, and has no such keys. So only what is the same is compared.
		unlike bool
	}{
		{name: "of spaces and signs", after: "odd key/ü +&=%20.bin"},
		{name: "of an escaped slash", after: "a%2Fb"},
		{name: "of XML's and URL's signs", after: `<&>"';:@$,?#()*!~[]{}|\^` + "`"},
		{name: "of other letters", after: "日本語/é/e\u0301"},
		{name: "with an empty segment", after: "a//b", unlike: true},
		{name: "with dots", after: "a/./b/../c", unlike: true},
		{name: "with a slash first", before: "/", after: "x", unlike: true},
		{name: "with a slash last", after: "directory/", unlike: true},
		{name: "of 1024 bytes", after: strings.Repeat("k", 99) + strings.Repeat("/"+strings.Repeat("k", 99), 8) + "/" +
			strings.Repeat("k", 1024-900-len(newPrefix())-len("odd0/"))},
	} {
		cases = append(cases, Case{Name: "key " + k.name, run: func(a *attempt) {
			directory := fmt.Sprintf("odd%d/", i)
			key := k.before + a.key(directory+k.after)
			do := func(op string, in M, want any) {
				if k.unlike {
					want = nil
				}
				a.do(op, in, want)
			}
			do("PutObject", M{"Key": key, "Body": "1KiB"}, ok)
			do("GetObject", M{"Key": key}, object("1KiB"))
			do("HeadObject", M{"Key": key}, head("1KiB"))
			do("ListObjectsV2", M{"Prefix": k.before + a.key(directory)}, entries(k.before+directory+k.after))
			do("DeleteObject", M{"Key": key}, ok)
			do("GetObject", M{"Key": key}, "404 NoSuchKey")
		}})
	}
	return cases
}

// ranges are a case for each kind of range, of an object of 5 MiB.
func ranges() (cases []Case) {
	const size = 5 << 20
	for _, r := range []struct {
		name, header string
		first, end   int
	}{
		{"of the first bytes", "0-99", 0, 100},
		{"of one byte", "0-0", 0, 1},
		{"in the middle", "1000000-1999999", 1_000_000, 2_000_000},
		{"without an end", "5242000-", 5_242_000, size},
		{"of the last bytes", "-100", size - 100, size},
		{"over the end", "5242800-9999999", 5_242_800, size},
		{"of more last bytes than there are", "-9999999", 0, size},
		{"after the end", "5242880-", size, size},
	} {
		cases = append(cases, Case{Name: "range " + r.name, run: func(a *attempt) {
			in := M{"Key": a.stored("ranges", "5MiB"), "Range": "bytes=" + r.header}
			if r.first == size {
				a.do("GetObject", in, "416 InvalidRange")
				return
			}
			data := content("5MiB")[r.first:r.end]
			a.do("GetObject", in, M{"sha256": digest(data), "ContentLength": len(data), "ETag": etag(content("5MiB")),
				"ContentRange": fmt.Sprintf("bytes %d-%d/%d", r.first, r.end-1, size)})
			a.do("HeadObject", in, M{"ContentLength": len(data)})
		}})
	}
	return cases
}
