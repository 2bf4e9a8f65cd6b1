// A backup of the store, and its restore: what an administrator does with etcd, as far as the API server can tell.

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// backup copies the store while both servers are down. Only etcd runs then.
func (s *supervisor) backup(ctx context.Context) error {
	return s.withServersDown(ctx, func() error {
		if err := os.RemoveAll(s.backupFolder()); err != nil {
			return err
		}
		return os.CopyFS(s.backupFolder(), os.DirFS(s.storeFolder()))
	})
}

// restore puts a folder of etcd in the place of the store: the one that is named, or the last backup. Only etcd runs
// then. The oracle begins anew with what the store holds: a store that goes back has no single order of events. What
// agents hold, it keeps.
func (s *supervisor) restore(ctx context.Context, folder string) error {
	if folder == "" {
		folder = s.backupFolder()
	}
	if _, err := os.Stat(folder); err != nil {
		return errors.Join(errors.New("there is no backup"), err)
	}
	return s.withServersDown(ctx, func() error {
		if err := os.RemoveAll(s.storeFolder()); err != nil {
			return err
		}
		return os.CopyFS(s.storeFolder(), os.DirFS(folder))
	})
}

// withServersDown stops both servers, carries out change, and starts etcd. The oracle has read everything that was
// written before, and reads what the store holds before the API server writes again.
func (s *supervisor) withServersDown(ctx context.Context, change func() error) error {
	if err := s.apiserver.kill(); err != nil { // All that it has is in etcd, and a clean stop takes many seconds.
		return err
	}
	if _, err := s.observer.catchUp(ctx); err != nil {
		return err
	}
	if err := s.etcd.stop(); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	if err := s.etcd.start(ctx); err != nil {
		return err
	}
	return s.observer.beginAnew(ctx, func() error { return nil })
}

func (s *supervisor) storeFolder() string  { return filepath.Join(s.data, "etcd") }
func (s *supervisor) backupFolder() string { return filepath.Join(s.data, "etcd-backup") }
