package site

import (
	"context"
	"io"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/peers"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// Written implements peers.Objects. The write's file is whole, so nobody who asks for it waits for anybody else.
func (o *Own) Written(k objects.Key, write string) (peers.Copy, bool) {
	ref, err := source.ParseReference(k.Reference)
	if err != nil || ref.Scheme != source.SchemeS3 {
		return nil, false
	}
	h, err := o.Writes.HeldWrite(writeback.Key{Store: k.Store, Bucket: ref.Bucket, Key: ref.Key}, write)
	if err != nil || h == nil {
		return nil, false
	}
	about := h.Object
	about.Fresh = max(0, o.Cache.Rule(k.Store, ref.Bucket).Fresh)
	return &written{h, about}, true
}

// written is a write that the store does not have yet. It implements peers.Copy.
type written struct {
	*writeback.Held
	about source.Object
}

// Object implements peers.Copy.
func (w *written) Object() source.Object { return w.about }

// Block implements peers.Copy.
func (w *written) Block(_ context.Context, i int64) (sum digest.Sum, n int, err error) {
	from := i * digest.Block
	if from >= w.about.Size {
		return sum, 0, io.EOF
	}
	size := min(digest.Block, w.about.Size-from)
	sum, err = digest.OfRead(io.NewSectionReader(w.Held, from, size))
	return sum, int(size), err
}
