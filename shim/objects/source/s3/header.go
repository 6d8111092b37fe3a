package s3

import (
	"net/http"
	"strings"
	"unicode/utf8"
)

// headerMost bounds what is noted of an object's header, in bytes. S3 allows 2 KiB of user metadata; a neighbour is told
// 8 KiB of an object at most.
const headerMost = 4 << 10

// said are the headers of an answer that are of the object, and not of the answer.
var said = map[string]bool{
	"Cache-Control": true, "Content-Disposition": true, "Content-Encoding": true, "Content-Language": true,
	"Content-Type": true, "Etag": true, "Expires": true, "Last-Modified": true,
	"X-Amz-Expiration": true, "X-Amz-Missing-Meta": true, "X-Amz-Object-Lock-Legal-Hold": true,
	"X-Amz-Object-Lock-Mode": true, "X-Amz-Object-Lock-Retain-Until-Date": true, "X-Amz-Replication-Status": true,
	"X-Amz-Server-Side-Encryption": true, "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": true,
	"X-Amz-Server-Side-Encryption-Bucket-Key-Enabled": true, "X-Amz-Storage-Class": true, "X-Amz-Tagging-Count": true,
	"X-Amz-Version-Id": true, "X-Amz-Website-Redirect-Location": true,
}

const (
	// metadata begins the headers that the object's owner has given it.
	metadata = "X-Amz-Meta-"
	// checksum begins those with its checksums. They come if the question has Checked: with "ENABLED".
	checksum = "X-Amz-Checksum-"
	// Checked is noted of an object with the value of the question by which its header is known. An object that was read in
	// parts has no checksums then, and without it it is not known whether it has any.
	Checked = "X-Amz-Checksum-Mode"
)

// control tells whether a header's value cannot have a character (RFC 9110, section 5.5).
func control(c rune) bool { return c < ' ' && c != '\t' || c == '\x7f' }

// Header returns what of an answer's header is of the object; nil if that is too much to be noted, or is no text.
func Header(answer http.Header) http.Header {
	of := http.Header{}
	size := 0
	for name, values := range answer {
		if !said[name] && !strings.HasPrefix(name, metadata) && !strings.HasPrefix(name, checksum) {
			continue
		}
		of[name] = values
		for _, v := range values {
			size += len(name) + len(v)
			if !utf8.ValidString(v) || strings.ContainsFunc(v, control) {
				return nil
			}
		}
	}
	if size > headerMost {
		return nil
	}
	return of
}
