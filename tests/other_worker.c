// A compile worker of another version: it answers any hello in a protocol of its own.

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int main(void)
{
    char packet[64];
    if (recv(3, packet, sizeof(packet), 0) != 24)
        return 1;
    packet[4] = 99;               // protocol version
    packet[8] = 2;                // welcome
    static const char content[] = "\6\0\0\0" "9.9.9\0" "\0\0\0\0" "\1\0\0\0";
    int memfd = memfd_create("other", MFD_CLOEXEC);
    if (write(memfd, content, sizeof(content)) != sizeof(content))
        return 1;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec part = {.iov_base = packet, .iov_len = 24};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &memfd, sizeof(int));
    sendmsg(3, &header, 0);
    while (recv(3, packet, sizeof(packet), 0) > 0)
        ;
    return 0;
}
