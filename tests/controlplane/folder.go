// The data folder: one supervisor at a time, the log of this process, and the ports of earlier runs.

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// lockFolder keeps a second supervisor out of the folder for as long as this process lives.
func lockFolder(folder string) error {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("%s is in use by another control plane: %w", folder, err)
	}
	locked = file
	return nil
}

// logTo sends what the client libraries of this process log to a file; the streams belong to the protocol.
func logTo(name string) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	klog.SetOutput(file)
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, file, file))
	return nil
}

// locked keeps the lock's file from being closed by the garbage collector.
var locked *os.File

type ports struct{ Etcd, EtcdPeer, Apiserver int }

// reservePorts takes the ports of the last run on this folder if they are free, so that kubeconfigs stay valid.
func reservePorts(data string) (ports, error) {
	var p ports
	file := filepath.Join(data, "ports.json")
	if content, err := os.ReadFile(file); err == nil {
		_ = json.Unmarshal(content, &p) // A torn file means new ports.
	} else if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	for _, port := range []*int{&p.Etcd, &p.EtcdPeer, &p.Apiserver} {
		var err error
		if *port, err = reservePort(*port); err != nil {
			return p, err
		}
	}
	content, err := json.Marshal(p)
	if err != nil {
		return p, err
	}
	return p, os.WriteFile(file, content, 0o644)
}
