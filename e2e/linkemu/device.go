package linkemu

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	tunPath = "/dev/net/tun"
	// sendQueue is how many packets wait in the kernel to be read: enough for the
	// acknowledgements of a burst while the reader's thread is not scheduled for some ms.
	sendQueue = 4096
)

// device is a TUN device that lives as long as its descriptor.
type device struct {
	name string
	fd   int // does not block
}

func (d *device) close() error {
	if err := unix.Close(d.fd); err != nil {
		return fmt.Errorf("removing device %s: %w", d.name, err)
	}
	return nil
}

// openDevice makes the end's device, gives it its address and brings it up.
func openDevice(end End) (*device, error) {
	namespace, err := netns.GetFromPath(end.Namespace)
	if err != nil {
		return nil, fmt.Errorf("opening network namespace %s: %w", end.Namespace, err)
	}
	defer namespace.Close()
	fd, err := createIn(namespace, end.Device)
	if err != nil {
		return nil, fmt.Errorf("making device %s in %s: %w", end.Device, end.Namespace, err)
	}
	d := &device{name: end.Device, fd: fd}
	if err := configure(namespace, end); err != nil {
		return nil, errors.Join(fmt.Errorf("configuring device %s: %w", end.Device, err), d.close())
	}
	return d, nil
}

// createIn makes the device on a thread of its own: a TUN device belongs to the namespace
// of the thread that opens it, and the thread ends with the goroutine because it is never
// unlocked, so none is left in a foreign namespace.
func createIn(namespace netns.NsHandle, name string) (fd int, err error) {
	created := make(chan struct{})
	go func() {
		defer close(created)
		runtime.LockOSThread()
		if err = netns.Set(namespace); err == nil {
			fd, err = create(name)
		}
	}()
	<-created
	return fd, err
}

func create(name string) (int, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("opening %s: %w", tunPath, err)
	}
	// Exclusive: attaching to a device that somebody else made would steal its packets.
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	if err == nil {
		// Super-packets of up to 64 KiB instead of 1500 bytes: a tenth of the CPU.
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
	}
	if err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func configure(namespace netns.NsHandle, end End) error {
	address, err := netlink.ParseAddr(end.Address)
	if err != nil {
		return err
	}
	h, err := netlink.NewHandleAt(namespace)
	if err != nil {
		return err
	}
	defer h.Close()
	link, err := h.LinkByName(end.Device)
	if err != nil {
		return err
	}
	if err := h.LinkSetTxQLen(link, sendQueue); err != nil {
		return err
	}
	if err := h.AddrAdd(link, address); err != nil {
		return err
	}
	return h.LinkSetUp(link)
}
