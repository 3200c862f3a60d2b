"""A set of records on its way from a rank to a daemon."""

import zlib
from typing import Any

import msgspec
import pytest

from emlio.errors import RemoteProtocolError
from emlio.session.contents import ContentCollector, cut_content, pack, unpack
from emlio.session.daemon import DaemonSession
from emlio.session.instructions import Judge, Send
from emlio.session.states import DaemonState
from emlio.wire.control import ContentPart, PlanReply, Refused, decode_control, encode_control
from emlio.wire.limits import CONTENT_PART_BYTES, MAX_CONTROL_BYTES
from emlio_testing.session_pair import daemon_session, example_offer

CONTENT = bytes(range(256)) * 10_000
