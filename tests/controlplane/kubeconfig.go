// Kubeconfigs that need no other file: certificates and tokens are inside.

package main

import (
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a kubeconfig for one user; the file appears whole or not at all.
func writeKubeconfig(file, server string, ca []byte, user *clientcmdapi.AuthInfo) error {
	const name = "controlplane"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[name] = user
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, file+".new"); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
