// STAND-IN for two device plugins, SR-IOV's and NVIDIA's: neither is run where this is used, and every report says so.
//
// Imitated: k8snetworkplumbingwg/sriov-network-device-plugin v3.11.0, its discovery by pciAddresses alone (no isRdma, no other
// selector), and of NVIDIA's k8s-device-plugin the number of shares; no CDI, no health.
//
// It reads the file that our DaemonSets give them (--config-file), and registers with the kubelet what it names: of an
// SR-IOV configuration one resource for each entry of resourceList, its devices being those of pciAddresses that the node
// has now (as the real one does, at its start only); of NVIDIA's one GPU that is not there, in as many shares as it says.
// Built inside the tree of Kubernetes, whose stub of a device plugin it uses.
package main

import (
	"encoding/json"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

type config struct {
	ResourceList []struct {
		ResourceName, ResourcePrefix string
		Selectors                    []struct{ PciAddresses []string }
	}
	Sharing struct {
		TimeSlicing struct {
			Resources []struct {
				Name     string
				Replicas int
			}
		}
	}
}

func offered(c config) map[string][]string {
	found := map[string][]string{}
	for _, r := range c.ResourceList {
		for _, s := range r.Selectors {
			for _, pci := range s.PciAddresses {
				if _, err := os.Stat("/sys/bus/pci/devices/" + pci); err == nil {
					name := r.ResourcePrefix + "/" + r.ResourceName
					found[name] = append(found[name], pci)
				} else {
					log.Printf("%s/%s: no device %s", r.ResourcePrefix, r.ResourceName, pci)
				}
			}
		}
	}
	if c.ResourceList == nil {
		shares := 1
		for _, r := range c.Sharing.TimeSlicing.Resources {
			shares = r.Replicas
		}
		for i := 0; i < shares; i++ {
			found["nvidia.com/gpu"] = append(found["nvidia.com/gpu"], "GPU-stand-in-"+strconv.Itoa(i))
		}
	}
	return found
}

func allocate(resource string) func(*pluginapi.AllocateRequest, map[string]pluginapi.Device) (*pluginapi.AllocateResponse, error) {
	key := "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_").Replace(resource))
	return func(asked *pluginapi.AllocateRequest, _ map[string]pluginapi.Device) (*pluginapi.AllocateResponse, error) {
		answer := &pluginapi.AllocateResponse{}
		for _, one := range asked.ContainerRequests {
			told := map[string]string{key: strings.Join(one.DevicesIDs, ",")}
			answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{Envs: told})
		}
		return answer, nil
	}
}

// serve offers a resource for ever: anew whenever the kubelet has emptied its folder.
func serve(resource string, ids []string) {
	var devices []*pluginapi.Device
	for _, id := range ids {
		devices = append(devices, &pluginapi.Device{ID: id, Health: pluginapi.Healthy})
	}
	socket := filepath.Join(pluginapi.DevicePluginPath, "stand-in-"+strings.ReplaceAll(resource, "/", "_")+".sock")
	for {
		stub := devicemanager.NewDevicePluginStub(devices, socket, resource, false, false)
		stub.SetAllocFunc(allocate(resource))
		err := stub.Start()
		if err == nil {
			err = stub.Register(pluginapi.KubeletSocket, resource, "")
		}
		if err == nil {
			log.Printf("registered %s: %s", resource, strings.Join(ids, ", "))
			for err == nil {
				time.Sleep(time.Second)
				_, err = os.Stat(socket)
			}
		}
		log.Print(err)
		stub.Stop()
		time.Sleep(time.Second)
	}
}

func main() {
	var c config
	for _, argument := range os.Args[1:] {
		if path := strings.TrimPrefix(argument, "--config-file="); path != argument {
			text, err := os.ReadFile(path)
			if err != nil {
				log.Fatal(err)
			}
			if err := json.Unmarshal(text, &c); err != nil {
				log.Fatal(err)
			}
		}
	}
	for resource, ids := range offered(c) {
		go serve(resource, ids)
	}
	select {}
}
