"""Lines that begin with a slash -> what a chat does besides asking."""

from tg_cli.conversation import ChatModel, Conversation
from tg_cli.endings import Failure, notify
from tg_client import TgClient

HELP = """\
/model         list the models that can be asked
/model NAME    ask this one from now on
/system        show the system prompt
/system TEXT   set it; "-" removes it
/image FILE    show an image with the next message
/clear         forget all messages
/save FILE     write the conversation; tg-chat --history FILE continues it
/help          show this
/quit, exit    end, as Ctrl-D does
A line that ends with \\ goes on in the next one. A message that begins with a slash is written with two."""


def is_command(message: str) -> bool:
    """Whether a line is a command. A line that begins with two slashes is a message."""
    return message.strip() == "exit" or (message.startswith("/") and not message.startswith("//"))


class ChatCommands:
    """The commands of one chat.

    Attributes:
        ended: whether the user has asked for the end.
    """

    def __init__(self, client: TgClient, chat_model: ChatModel, conversation: Conversation) -> None:
        self.ended = False
        self._client = client
        self._chat_model = chat_model
        self._conversation = conversation

    async def run(self, line: str) -> None:
        """Do what a line asks for.

        Raises:
            Failure: there is no such command, or its argument is wrong.
            TgError: the gateway refused.
        """
        name, _, argument = line.strip().partition(" ")
        argument = argument.strip()
        match name:
            case "/model":
                await self._choose_model(argument)
            case "/system":
                if argument:
                    self._conversation.system = "" if argument == "-" else argument
                notify(f"system: {self._conversation.system or 'none'}")
            case "/image" | "/save" if not argument:
                raise Failure(f"{name} needs the name of a file")
            case "/image":
                self._conversation.attach(argument)
                notify(f"{argument} goes with the next message")
            case "/clear":
                self._conversation.clear()
                notify("all messages are forgotten")
            case "/save":
                self._conversation.save(argument)
                notify(f"saved {len(self._conversation.turns)} turns to {argument}")
            case "/help":
                notify(HELP)
            case "/quit" | "exit":
                self.ended = True
            case _:
                raise Failure(f"there is no command {name}; /help lists them, and // begins a message with a slash")

    async def _choose_model(self, name: str) -> None:
        names = [row.model for row in await self._client.models()]
        if not name:
            for known in names:
                notify(f"{'*' if known == self._chat_model.model else ' '} {known}")
        # The list has no adapters: a model with one is named `base:adapter`.
        elif name in names or name.rpartition(":")[0] in names:
            self._chat_model.model, self._chat_model.flow = name, None
            notify(f"asking {name}")
        else:
            raise Failure(f"there is no model {name}; there are: {', '.join(names) or 'none'}")
